-- Takes the oldest entries off a stream, but none that a group hasn't acknowledged.
--
-- KEYS: the stream. ARGV: the group that must be there; how many entries are kept; how many are
-- taken away at most.
-- The answer: how many were taken away, how many there are beyond those to be kept, and the group
-- that has acknowledged the least.
local function less(a, b)
  -- Halves of ids may be longer than a number is exact for, so they are compared as text.
  local ams, aseq = a:match('^(%d+)-(%d+)$')
  local bms, bseq = b:match('^(%d+)-(%d+)$')
  if #ams ~= #bms then return #ams < #bms end
  if ams ~= bms then return ams < bms end
  if #aseq ~= #bseq then return #aseq < #bseq end
  return aseq < bseq
end

local stream = KEYS[1]
local beyond = redis.call('XLEN', stream) - tonumber(ARGV[2])
if beyond <= 0 then
  return { 0, 0, '' }
end
local known, bound, slowest = false, nil, ''
for _, group in ipairs(redis.call('XINFO', 'GROUPS', stream)) do
  local about = {}
  for i = 1, #group, 2 do
    about[group[i]] = group[i + 1]
  end
  known = known or about.name == ARGV[1]
  local reached = about['last-delivered-id']
  if about.pending > 0 then
    reached = redis.call('XPENDING', stream, about.name)[2]
  end
  if not bound or less(reached, bound) then
    bound, slowest = reached, about.name
  end
end
if not known then
  return { 0, beyond, ARGV[1] }
end
-- What is at the bound stays. The limit needs an approximate trim, which takes whole nodes and never
-- more than it says.
local most = math.min(beyond, tonumber(ARGV[3]))
local gone = redis.call('XTRIM', stream, 'MINID', '~', bound, 'LIMIT', most)
return { gone, beyond - gone, slowest }
