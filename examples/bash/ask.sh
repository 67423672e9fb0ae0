#!/usr/bin/env bash
# Asks a service and polls for its answer, with redis-cli alone: ask.sh URL SITE TARGET COMMAND [PARAMS]
#
#     ./ask.sh redis://127.0.0.1:6390 shop echo sum '[1, 2, 3]'
#
# A password is better given in REDISCLI_AUTH than in the URL, where `ps` shows it.
set -euo pipefail
(($# == 4 || $# == 5)) || { echo "usage: ask.sh URL SITE TARGET COMMAND [PARAMS]" >&2; exit 2; }
url=$1 site=$2 target=$3 command=$4 params=${5:-{\}}
seconds=10 # how long the answer may take

store() { redis-cli -e --no-auth-warning -u "$url" --raw "$@"; }

stream=$site:gnode:unified:production
mine=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')

if [[ $(store EXISTS "$stream") == 0 ]]; then # nobody knows this site yet
  me='{"id":"'$site'","environments":["production"],"metadata":{}}'
  store XADD gnode:gnode:register '*' t c c register_service p "$me" ss "$site" >/dev/null
fi
# Where this fails it isn't known whether it was written, so it is never sent again.
store XADD "$stream" '*' t c i "$mine" c "$command" p "$params" _rt "$target" >/dev/null

for ((end = SECONDS + seconds; SECONDS < end; )); do
  # The reply, or the refusal, lies here for a minute. Asking again does no harm.
  reply=$(store GET "$site:res:$mine") || true
  case $reply in
    '{"id":"'$mine'","status":"ok","result":'*)
      result=${reply#*\"result\":}
      echo "$target answered: ${result%,\"error\":null,*}"
      exit 0
      ;;
    '{"id":"'$mine'","status":"error"'*)
      reason=${reply#*\"error\":}
      echo "$target couldn't: ${reason%,\"timestamp\":*}" >&2
      exit 1
      ;;
  esac
  sleep 0.1
done
echo "perhaps done; look before asking again" >&2
exit 1
