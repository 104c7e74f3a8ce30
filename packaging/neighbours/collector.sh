#!/usr/bin/env bash
# What Gristmill exports by OTLP has the fields of OpenTelemetry's own messages, as its Python package reads them.
set -euo pipefail
folder=$(mktemp -d)
pids=()
trap '[ ${#pids[@]} -eq 0 ] || kill "${pids[@]}"; wait; rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check 'opentelemetry-proto==1.41.*'
cat >receiver.py <<'PYTHON'
"""Answers 400 to what the messages of opentelemetry-proto cannot hold, and notes the names that came."""
import http.server, json
from google.protobuf import json_format
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2

kinds = {
    "/v1/traces": trace_service_pb2.ExportTraceServiceRequest,
    "/v1/metrics": metrics_service_pb2.ExportMetricsServiceRequest,
    "/v1/logs": logs_service_pb2.ExportLogsServiceRequest,
}
class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        try:
            message = json_format.Parse(body, kinds[self.path]())
        except (json_format.ParseError, KeyError) as error:
            print("refused", self.path, error, flush=True)
            self.send_error(400)
            return
        for resource in getattr(message, "resource_spans", []):
            for scope in resource.scope_spans:
                for span in scope.spans:
                    print("span", span.name, span.end_time_unix_nano >= span.start_time_unix_nano > 0, flush=True)
        for resource in getattr(message, "resource_metrics", []):
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    print("metric", metric.name, metric.WhichOneof("data"), flush=True)
        self.send_response(200)
        self.send_header("content-length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

server = http.server.ThreadingHTTPServer(("127.0.0.1", 14318), Handler)
print("ready", flush=True)
server.serve_forever()
PYTHON
venv/bin/python receiver.py >seen & pids+=($!)
for _ in $(seq 100); do grep -q ready seen && break; sleep 0.1; done
export OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:14318 OTEL_METRIC_EXPORT_INTERVAL=500 OTEL_BSP_SCHEDULE_DELAY=200
printf 'def main(number):\n    if number == 2:\n        raise ValueError(number)\n    return number\n' >double.py
TRACEPARENT=00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01 "$GRISTMILL" submit double 1 2 3 --retries 0 --store jobs.db >/dev/null
"$GRISTMILL" worker double.py --kind double --drain --quiet --store jobs.db || true
"$GRISTMILL" serve --store jobs.db --listen 127.0.0.1:18379 --quiet & pids+=($!)
for _ in $(seq 100); do grep -q '^metric gristmill_jobs_due\|^metric gristmill.jobs' seen && break; sleep 0.2; done
sort seen | uniq -c
! grep -q 'refused\|False' seen
grep -q '^span submit double True' seen && grep -q '^span run double True' seen && grep -q '^span job double True' seen
grep -q '^metric .* histogram' seen && grep -q '^metric .* sum' seen
