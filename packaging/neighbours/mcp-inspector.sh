#!/usr/bin/env bash
# The inspector of the Model Context Protocol lists the tools of `gristmill mcp`, calls one, and gets the error of a wrong argument.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-audit --no-fund --prefix . @modelcontextprotocol/inspector@2.12.0 node@24.21.0
PATH=$folder/node_modules/node/bin:$PATH
printf 'ADA: My bees make forty kilos of honey.\n\nBOB: Wasps came to the hive in March.\n' >show.txt
"$GRISTMILL" ingest show.txt --into kb.db --extractor local --quiet
inspect() {
  timeout 60 node_modules/.bin/mcp-inspector --cli "$GRISTMILL" mcp kb.db --parser rules --method "$@"
}
inspect tools/list >tools.json
inspect tools/call --tool-name recall --tool-arg 'question=Who talked about wasps?' --tool-arg limit=1 >found.json
inspect tools/call --tool-name recall --tool-arg 'question=wasps' --tool-arg limit=0 >refused.json 2>&1 || true
cat refused.json
python3 - <<'PYTHON'
import json

tools = {tool["name"]: tool for tool in json.load(open("tools.json"))["tools"]}
assert "recall" in tools and tools["recall"]["inputSchema"]["required"] == ["question"], tools
[content] = json.load(open("found.json"))["content"]
[message] = json.loads(content["text"])["messages"]
assert message["source"] == "show.txt" and message["speaker"] == "Bob" and "Wasps" in message["text"], message
assert "limit" in open("refused.json").read(), "an error names the argument"
PYTHON
