#!/usr/bin/env bash
# A complete service with redis-cli alone: answer.sh URL SITE [NODE]
#
#     ./answer.sh redis://127.0.0.1:6390 echo
#     crossway send echo sum '[1, 2, 3]' --from shop
#
# One command at a time: for what a script does, not for thousands a second. A password is better
# given in REDISCLI_AUTH than in the URL, where `ps` shows it.
set -uo pipefail
(($# == 2 || $# == 3)) || { echo "usage: answer.sh URL SITE [NODE]" >&2; exit 2; }
url=$1 site=$2 node=${3:-$(hostname)}
group=service # all processes of a site share the work
stream=$site:gnode:unified:production

store() { redis-cli -e --no-auth-warning -u "$url" "$@"; }

tickets=0
run() { # sets `outcome` to the fields that say how the command $1 with parameters $2 ended
  case $1 in
    echo) outcome=(st ok r "$2") ;;
    sum)
      if [[ $2 =~ ^\[\ *(-?[0-9]{1,15}(\ *,\ *-?[0-9]{1,15})*)\ *\]$ ]]; then
        local total=0 number
        for number in ${BASH_REMATCH[1]//,/ }; do total=$((total + 10#${number#-} * (${number%%[0-9]*}1))); done
        outcome=(st ok r "{\"sum\":$total}")
      else
        outcome=(st error _ec INVALID_PARAMS e "sum adds a list of whole numbers")
      fi
      ;;
    ticket) outcome=(st ok r "{\"ticket\":$((++tickets))}") ;; # doing this twice would be a mistake
    *) outcome=(st error _ec UNKNOWN_COMMAND e "$1 isn't one of echo, sum, ticket") ;;
  esac
}

# Turns what redis-cli prints for one entry into `id` and `field`. Each line ends with a string in
# quotes, with whatever isn't plain text escaped.
parse() {
  local lines=() line
  while IFS= read -r line; do
    [[ $line == *\"*\" ]] || continue
    line=${line#*\"} line=${line%\"}
    line=${line//\\\"/\"}
    printf -v line '%b' "$line"
    lines+=("$line")
  done <<<"$1"
  id=${lines[1]-}
  field=()
  local at
  for ((at = 2; at + 1 < ${#lines[@]}; at += 2)); do
    case ${lines[at]} in t | i | c | p | _rt) field[${lines[at]}]=${lines[at + 1]} ;; esac
  done
}

join() {
  if [[ $(store --raw EXISTS "$stream") == 0 ]]; then # nobody knows this site yet
    local me='{"id":"'$site'","environments":["production"],"metadata":{}}'
    store XADD gnode:gnode:register '*' t c c register_service p "$me" ss "$site" >/dev/null
  fi
  # It may be there already: as it should be.
  store XGROUP CREATE "$stream" "$group" 0 MKSTREAM >/dev/null 2>&1
}

declare -A field
join
echo "$site answers on $stream; Ctrl-C ends it"
trap 'exit 0' INT TERM

after=0 # what this node had read and not answered comes first; then what is new
while :; do
  if ! read=$(store --no-raw XREADGROUP GROUP "$group" "$node" COUNT 1 BLOCK 1000 STREAMS "$stream" "$after"); then
    # The store is away, still loading, or was emptied (NOGROUP): try again, from the start.
    sleep 1
    join
    after=0
    continue
  fi
  parse "$read"
  if [[ -z $id && $after == 0 ]]; then
    after='>'
    continue
  fi
  if [[ -z $id ]]; then
    # Nothing new: what a node that died had read, perhaps.
    parse "$(store --no-raw XAUTOCLAIM "$stream" "$group" "$node" 60000 0 COUNT 1)"
    [[ -n $id ]] || continue
  fi
  # Ours are commands that aren't on their way to somebody else (`_rt`).
  if [[ ${field[t]-} == @(c|bc) && -z ${field[_rt]+there} ]]; then
    delivery=${field[i]:-$id} kind=r
    [[ ${field[t]} == c ]] || { kind=br field[c]=batch; }
    # One that comes again isn't worked on again: its answer is given again.
    if [[ $delivery != "${last-}" ]]; then
      run "${field[c]-}" "${field[p]-null}"
      last=$delivery
    fi
    store XADD "$stream" '*' t $kind ri "$delivery" ts "$(date +%s%3N)" "${outcome[@]}" ss "$site" sn "$node" >/dev/null || { after=0 && continue; }
  fi
  store XACK "$stream" "$group" "$id" >/dev/null || after=0
done
