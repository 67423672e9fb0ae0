-- Deletes a stream that hasn't been used for some time, and looks in the same step, so that nothing
-- can come in between.
--
-- KEYS: the stream. ARGV: seconds.
-- The answer: nil where the stream is gone, else the seconds for which it hasn't been used.
--
-- The store knows when a key was used last, by whatever command, a read that found nothing included.
-- It counts in whole seconds of its own clock, so one more must have passed. While it saves it takes
-- no note of any use; so nothing is deleted then, and what a save took comes on top.
local stream, wanted = KEYS[1], tonumber(ARGV[1])
local unused = redis.call('OBJECT', 'IDLETIME', stream)
if not unused then
  return false
end
if redis.call('TYPE', stream).ok ~= 'stream' then
  return redis.error_reply('WRONGTYPE the key holds something that is no stream')
end
if unused <= wanted then
  return unused
end

local about = redis.call('INFO', 'persistence')
local function figure(name)
  return tonumber(about:match(name .. ':(%-?%d+)')) or 0
end
local saving = figure('rdb_bgsave_in_progress') + figure('aof_rewrite_in_progress')
local missed = math.max(0, figure('rdb_last_bgsave_time_sec')) + math.max(0, figure('aof_last_rewrite_time_sec'))
if saving > 0 or unused <= wanted + missed then
  return math.max(0, wanted - 1)
end

-- What was written or delivered meanwhile is known all the same.
local function facts(list)
  local known = {}
  for i = 1, #list, 2 do
    known[list[i]] = list[i + 1]
  end
  return known
end
local now = tonumber(redis.call('TIME')[1])
local last = facts(redis.call('XINFO', 'STREAM', stream))['last-generated-id']
unused = math.min(unused, math.max(0, now - math.floor(tonumber(last:match('^(%d+)')) / 1000)))
for _, group in ipairs(redis.call('XINFO', 'GROUPS', stream)) do
  for _, consumer in ipairs(redis.call('XINFO', 'CONSUMERS', stream, facts(group).name)) do
    unused = math.min(unused, math.floor(facts(consumer).idle / 1000))
  end
end
if unused < wanted then
  return unused
end
redis.call('DEL', stream)
return false
