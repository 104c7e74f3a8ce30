#!/bin/bash
# Lets generators of clients read the API's description. Each client is compiled, submits a job to a real server and awaits its
# value. Linters find no error in the description. GRISTMILL names the program, WORK a folder for what is generated, CARGO the
# builder, and GENERATORS which are tried: all by default.
set -euo pipefail

OPENAPI_GENERATOR=7.24.0
OPENAPI_PYTHON_CLIENT=0.29.1
HEY_API=0.95.0
TYPESCRIPT=5.9.3
OAPI_CODEGEN=v2.8.2
OAPI_RUNTIME=v1.9.0
REDOCLY=2.77.0
SPECTRAL=6.16.3
ALL="lint java python rust python-client hey-api oapi-codegen"

here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$WORK"
cd "$WORK"

store=$(mktemp -d)
trap 'kill "${server:-}" "${worker:-}" 2>/dev/null || true; wait 2>/dev/null || true; rm -rf "$store"' EXIT
printf 'def main(payload):\n    return payload * 2\n' >"$store/double.py"
touch "$store/said"
"$GRISTMILL" serve --listen 127.0.0.1:0 --store "$store/gristmill.db" 2>"$store/said" &
server=$!
until url=$(grep -o 'http://[0-9.:]*' "$store/said"); do
    kill -0 "$server" || { cat "$store/said"; exit 1; }
done
"$GRISTMILL" worker "$store/double.py" --kind double --store "$store/gristmill.db" --quiet &
worker=$!
curl --silent --fail "$url/api/v1/openapi.json" >openapi.json
export GRISTMILL_URL=$url

# Runs a client, which prints the value of its job.
value() {
    local printed
    printed=$("$@")
    [ "$printed" = 42 ] || { echo "a client printed \`$printed\`, not the value 42: $*"; return 1; }
}

npm_installed() {
    [ -e "$1/done" ] && return
    mkdir -p "$1"
    npm install --silent --no-audit --no-fund --ignore-scripts --prefix "$1" "${@:2}"
    touch "$1/done"
}

generate() {
    local jar=tools/openapi-generator-cli-$OPENAPI_GENERATOR.jar
    [ -e "$jar" ] || mvn -q dependency:copy -DoutputDirectory="$PWD/tools" \
        -Dartifact="org.openapitools:openapi-generator-cli:$OPENAPI_GENERATOR"
    rm -rf "$1"
    java -jar "$jar" generate -g "$1" -i openapi.json -o "$1" >"$1.log" 2>&1 || { cat "$1.log"; return 1; }
}

try_lint() {
    npm_installed lint "@redocly/cli@$REDOCLY" "@stoplight/spectral-cli@$SPECTRAL"
    lint/node_modules/.bin/redocly lint openapi.json >redocly.log 2>&1 || { cat redocly.log; return 1; }
    echo 'extends: ["spectral:oas"]' >spectral.yaml
    lint/node_modules/.bin/spectral lint openapi.json --ruleset spectral.yaml --fail-severity error
}

try_java() {
    generate java
    cp "$here/Client.java" java/src/main/java/
    (cd java && mvn -q -B package dependency:copy-dependencies -DskipTests -Dmaven.javadoc.skip=true >../java-build.log 2>&1) ||
        { tail -30 java-build.log; return 1; }
    value java -cp 'java/target/classes:java/target/dependency/*' Client
}

try_python() {
    generate python
    [ -e python-venv ] || python3 -m venv python-venv
    python-venv/bin/pip install --quiet ./python
    value python-venv/bin/python "$here/generator_client.py"
}

try_rust() {
    generate rust
    mkdir -p rust/examples
    cp "$here/client.rs" rust/examples/
    # A package of its own, and what an asynchronous program needs.
    printf '\n[workspace]\n\n[dev-dependencies]\ntokio = { version = "1", features = ["macros", "rt"] }\n' >>rust/Cargo.toml
    CARGO_TARGET_DIR=$PWD/rust-target "${CARGO:-cargo}" build --quiet --manifest-path rust/Cargo.toml --example client
    value rust-target/debug/examples/client
}

try_python-client() {
    [ -e python-client-venv ] || python3 -m venv python-client-venv
    python-client-venv/bin/pip install --quiet "openapi-python-client==$OPENAPI_PYTHON_CLIENT"
    rm -rf python-client
    PATH=$PWD/python-client-venv/bin:$PATH openapi-python-client generate --meta none --path openapi.json \
        --output-path python-client/gristmill_client >python-client.log 2>&1 || { cat python-client.log; return 1; }
    PYTHONPATH=python-client value python-client-venv/bin/python "$here/python_client.py"
}

try_hey-api() {
    npm_installed hey-api "@hey-api/openapi-ts@$HEY_API" "typescript@$TYPESCRIPT" @types/node@20
    cd hey-api
    rm -rf src built
    node_modules/.bin/openapi-ts -i ../openapi.json -o src/generated >../hey-api.log 2>&1 || { cat ../hey-api.log; return 1; }
    cp "$here/client.ts" src/
    # Generated imports name no files: Node finds them all the same where modules are of the older kind.
    node_modules/.bin/tsc --strict --target es2022 --module commonjs --moduleResolution node10 --skipLibCheck --outDir built \
        src/client.ts
    value node built/client.js
    cd ..
}

try_oapi-codegen() {
    mkdir -p oapi-codegen/gristmill
    cd oapi-codegen
    [ -e oapi-codegen ] || GOBIN=$PWD go install "github.com/oapi-codegen/oapi-codegen/v2/cmd/oapi-codegen@$OAPI_CODEGEN"
    ./oapi-codegen -generate types,client -package gristmill ../openapi.json >gristmill/client.go
    cp "$here/client.go.txt" main.go
    rm -f go.mod go.sum
    go mod init example.com/client 2>/dev/null
    go get "github.com/oapi-codegen/runtime@$OAPI_RUNTIME" 2>/dev/null
    go vet ./...
    go build -o client .
    value ./client
    cd ..
}

for generator in ${GENERATORS:-$ALL}; do
    begun=$SECONDS
    "try_$generator"
    echo "$generator: passed, in $((SECONDS - begun)) s"
done
