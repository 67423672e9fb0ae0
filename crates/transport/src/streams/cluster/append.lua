-- Adds entries to a stream, in order, up to the first that is refused.
--
-- KEYS: the stream. ARGV: for each entry how many words it has, and the words. The answer is the
-- id of each, and last, after an exclamation mark, why another was refused.
local answers, a = {}, 1
while a <= #ARGV do
  local words = tonumber(ARGV[a])
  local given = redis.pcall('XADD', KEYS[1], '*', unpack(ARGV, a + 1, a + words))
  if type(given) == 'table' then
    answers[#answers + 1] = '!' .. given.err
    break
  end
  answers[#answers + 1] = given
  a = a + 1 + words
end
return answers
