-- Claims a key for one entry: whether it exists and no other entry has claimed it.
--
-- KEYS: the key, and the one beside it that says who has claimed it. ARGV: the entry, and the
-- milliseconds for which both are kept at least, so that whoever carries on after a crash finds them.
if redis.call('EXISTS', KEYS[1]) == 0 then
  return 0
end
local holder = redis.call('GET', KEYS[2])
if holder and holder ~= ARGV[1] then
  return 0
end
redis.call('SET', KEYS[2], ARGV[1], 'PX', ARGV[2])
local left = redis.call('PTTL', KEYS[1])
if left >= 0 and left < tonumber(ARGV[2]) then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return 1
