#!/usr/bin/env bash
# Guess: ffmpeg keeps the words of SubRip cues, which has no entities, when it writes SubRip or WebVTT.
# Truth: it takes `<` before a letter, a blank and a letter, or `/` for a tag up to the next `>`, and rewrites what it took:
# `a < b & c > d` becomes `a <b> d`, closed by a `</b>` that nobody wrote. The words between are gone, without a warning.
# Version and date: ffmpeg 5.1 (Debian 12) and 7.0 (PyPI imageio-ffmpeg), 2026-11.
# Gristmill: its reader takes `<` for a tag only before a letter, a digit or `/`, and keeps these words, so give it the file itself
# (crates/memory/src/source/subtitles.rs).
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
apt-get install -y -qq --no-install-recommends ffmpeg >/dev/null 2>&1 || true
python3 -m pip install --quiet --disable-pip-version-check --root-user-action ignore --no-deps \
  --target "$folder/site" imageio-ffmpeg==0.6.0
cd "$folder"
printf '1\n00:00:01,000 --> 00:00:03,000\nif a < b & c > d then stop\n\n' >cue.srt
for program in ffmpeg "$(find site -type f -name 'ffmpeg-linux*')"; do
  for format in srt webvtt; do
    version=$("$program" -version | sed -n '1s/.*version \([0-9]*\)\..*/\1/p')
    echo "$version to $format: $("$program" -v error -i cue.srt -f $format - | grep stop)"
  done
done | tee /dev/stderr | diff - <(cat <<'SEEN'
5 to srt: if a <b> d then stop</b>
5 to webvtt: if a <b> d then stop</b>
7 to srt: if a <b> d then stop</b>
7 to webvtt: if a <b> d then stop</b>
SEEN
)
