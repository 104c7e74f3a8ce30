# Does what the payload says, as far as a shell can: {"do":"…"} with fields in a fixed order.
payload=$(cat)
field() { printf '%s' "$payload" | sed -n "s/.*\"$1\":\"\\{0,1\\}\\([^\",}]*\\).*/\\1/p"; }
case $(field do) in
  '') printf '%s' "$payload" ;;
  raise) echo "$(field message)" >&2; exit 1 ;;
  exit) exit 3 ;;
  segfault) kill -SEGV $$ ;;
  hang) while :; do :; done ;;
  block)
    say=$(field say)
    if [ -n "$say" ]; then echo "$say" >&2; fi
    here=$(field here)
    if [ -n "$here" ]; then : >"$here"; fi
    cat "$(field fifo)"
    ;;
  terminate) : >"$(field here)"; cat "$(field fifo)" >&2; kill -s "$(field signal)" $$; while :; do sleep 1; done ;;
  print) echo "$(field text)" >&2; echo 'to stderr' >&2; echo '"printed"' ;;
  flood) yes xxxxxxx | head -c "$(field bytes)" >&2; echo 0 ;;
  child) (echo from the child >&2; echo and its stderr >&2); echo '"done"' ;;
  nothing) ;;
  text) printf 'two lines\nof text\n\n' ;;
  surrogate) printf '%s' '"a\ud800b"' ;;
  not_utf8) printf '\377' ;;
  huge) head -c "$(field bytes)" /dev/zero | tr '\0' x ;;
  job) 
    # As JSON, by Python: a key may hold anything but control characters.
    python3 -c 'import json, os
own = {name: os.environ.get("GRISTMILL_" + name.upper()) for name in
       ("job", "attempt", "key", "batch", "kind", "queue", "group", "tags", "deadline")}
own.update({name: json.loads(own[name] or rest) for name, rest in
            (("attempt", ""), ("batch", ""), ("tags", "{}"), ("deadline", "null"))}, id=own.pop("job"),
           traceparent=os.environ.get("TRACEPARENT"))
print(json.dumps(own))' ;;
  unread) exec true <&- ;;
  spawn) sleep 1000 & echo "[$$,$!]"; if [ "$(field stay)" = yes ]; then wait; fi ;;
esac
