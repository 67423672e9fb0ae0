-- Appends the original of a dead letter to its stream again and takes the letter away; does nothing
-- where the letter is gone. An append that fails ends the script before the letter is touched.
-- KEYS: the dead stream, the original's stream. ARGV: the letter's id, then the fields.
if #redis.call('XRANGE', KEYS[1], ARGV[1], ARGV[1]) == 0 then
  return false
end
local id = redis.call('XADD', KEYS[2], '*', unpack(ARGV, 2))
redis.call('XDEL', KEYS[1], ARGV[1])
return id
