-- Goes before the script that settles, where the members' hash lies on the same server: does nothing
-- unless the member is still there.
local holder = redis.pcall('HGET', KEYS[1], ARGV[1])
if type(holder) == 'table' and holder.err then
  return holder
end
if holder ~= ARGV[2] then
  return redis.error_reply('FENCED the membership has another holder')
end
