-- Gives one consumer of a group what is pending for the others, and removes those.
--
-- KEYS: the stream. ARGV: the group, the consumer. The answer is how many entries were taken over.
local taken = 0
for _, about in ipairs(redis.call('XINFO', 'CONSUMERS', KEYS[1], ARGV[1])) do
  local other
  for i = 1, #about, 2 do
    if about[i] == 'name' then
      other = about[i + 1]
    end
  end
  while other ~= ARGV[2] do
    local ids = {}
    for i, held in ipairs(redis.call('XPENDING', KEYS[1], ARGV[1], '-', '+', 1000, other)) do
      ids[i] = held[1]
    end
    if #ids == 0 then
      redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], other)
      break
    end
    ids[#ids + 1] = 'JUSTID'
    redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[2], 0, unpack(ids))
    taken = taken + #ids - 1
  end
end
return taken
