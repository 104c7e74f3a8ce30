"""The chart, the compose file and the units say what the program understands.

`make test-packaging` sets PROGRAM, HELM and OPENAPI, and installs PyYAML and kubernetes-validate.
"""

import json
import os
import re
import subprocess
import unittest
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import kubernetes_validate
import yaml

PACKAGING = Path(__file__).resolve().parent.parent
CHART = PACKAGING / "helm" / "gristmill"
KUBERNETES = "1.31"
CUSTOM = {"keda.sh/v1alpha1", "monitoring.coreos.com/v1"}

AGENT = {"name": "resize", "scripts": {"resize.py": "def main(payload):\n    return payload\n"}, "kinds": ["resize"]}
SCALED = AGENT | {
    "queues": ["default", "slow & steady"],
    "autoscaling": {"enabled": True, "replicasMax": 20, "jobsPerReplica": 500},
}


def run(*words):
    return subprocess.run([str(word) for word in words], capture_output=True, text=True)


def rendered(**values):
    """The documents of the chart with these values, by kind."""
    given = PACKAGING.parent / "build" / "packaging" / "values.json"
    given.parent.mkdir(parents=True, exist_ok=True)
    given.write_text(json.dumps(values))
    cluster = ["--kube-version", KUBERNETES, "--namespace", "work"]
    done = run(os.environ["HELM"], "template", "jobs", CHART, *cluster, "--values", given)
    if done.returncode != 0:
        raise ValueError(done.stderr)
    by_kind = {}
    for document in yaml.safe_load_all(done.stdout):
        if document:
            by_kind.setdefault(document["kind"], []).append(document)
    return by_kind


def options_of(command):
    """The long options of a command of the program."""
    done = run(os.environ["PROGRAM"], *command, "--help")
    assert done.returncode == 0, done.stderr
    return set(re.findall(r"^\s+(?:-\w, )?(--[a-z-]+)", done.stdout, re.MULTILINE))


def check_words(test, words):
    """A command line of the program: the command exists, and has each option."""
    known = options_of([words[0]])
    for word in words[1:]:
        if word.startswith("--"):
            test.assertIn(word.split("=")[0], known, words)


class Chart(unittest.TestCase):
    def test_every_manifest_fits_the_schema_of_kubernetes(self):
        ingress = {"enabled": True, "className": "nginx", "tlsSecret": "tls", "annotations": {"a": "b"}}
        full = rendered(
            agents=[SCALED, {"name": "own", "image": {"repository": "own", "tag": "1"}, "scriptPaths": ["/own.py"]}],
            server={"ingress": ingress, "serviceMonitor": {"enabled": True}, "podAnnotations": {"a": "b"}},
            imagePullSecrets=[{"name": "registry"}],
        )
        self.assertEqual(
            {kind: len(documents) for kind, documents in full.items()},
            {
                "ServiceAccount": 1,
                "Service": 1,
                "Deployment": 3,
                "PodDisruptionBudget": 1,
                "Ingress": 1,
                "ServiceMonitor": 1,
                "ConfigMap": 1,
                "TriggerAuthentication": 1,
                "ScaledObject": 1,
            },
        )
        for documents in [rendered(), rendered(agents=[AGENT]), full]:
            for document in sum(documents.values(), []):
                if document["apiVersion"] not in CUSTOM:
                    kubernetes_validate.validate(document, KUBERNETES, strict=True)

    def test_lint_finds_nothing(self):
        done = run(os.environ["HELM"], "lint", "--strict", "--kube-version", KUBERNETES, CHART)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_agents_are_scaled_by_a_number_that_the_api_has(self):
        description = json.loads(Path(os.environ["OPENAPI"]).read_text())
        operation = description["paths"]["/api/v1/backlog"]["get"]
        parameters = {parameter["name"] for parameter in operation["parameters"]}
        backlog = description["components"]["schemas"]["Backlog"]["properties"]
        documents = rendered(agents=[SCALED])
        (scaled,) = documents["ScaledObject"]
        service = documents["Service"][0]
        asked = []
        for trigger in scaled["spec"]["triggers"]:
            self.assertEqual((trigger["type"], trigger["metadata"]["authMode"]), ("metrics-api", "bearer"))
            self.assertIn(trigger["metadata"]["valueLocation"], backlog)
            self.assertEqual(trigger["metadata"]["targetValue"], "500")
            url = urlsplit(trigger["metadata"]["url"])
            self.assertEqual(url.hostname, f"{service['metadata']['name']}.work.svc")
            self.assertEqual(url.port, service["spec"]["ports"][0]["port"])
            self.assertEqual(url.path, "/api/v1/backlog")
            query = parse_qs(url.query)
            self.assertLessEqual(set(query), parameters)
            asked.append((query["kind"], query["queue"]))
            (authentication,) = documents["TriggerAuthentication"]
            self.assertEqual(trigger["authenticationRef"]["name"], authentication["metadata"]["name"])
        self.assertEqual(asked, [(["resize"], ["default"]), (["resize"], ["slow & steady"])])
        target = scaled["spec"]["scaleTargetRef"]["name"]
        (agent,) = [deployment for deployment in documents["Deployment"] if deployment["metadata"]["name"] == target]
        self.assertEqual(agent["spec"]["template"]["spec"]["containers"][0]["name"], "agent")
        self.assertNotIn("replicas", agent["spec"], "the autoscaler sets the number")

    def test_every_selector_finds_its_pods_and_no_others(self):
        documents = rendered(agents=[AGENT, AGENT | {"name": "other"}])
        pods = [deployment["spec"]["template"]["metadata"]["labels"] for deployment in documents["Deployment"]]
        for deployment, own in zip(documents["Deployment"], pods):
            selector = deployment["spec"]["selector"]["matchLabels"]
            self.assertEqual([pod for pod in pods if selector.items() <= pod.items()], [own])
        selector = documents["Service"][0]["spec"]["selector"]
        served = [pod["app.kubernetes.io/component"] for pod in pods if selector.items() <= pod.items()]
        self.assertEqual(served, ["server"])

    def test_the_arguments_and_probes_are_those_of_the_program(self):
        description = json.loads(Path(os.environ["OPENAPI"]).read_text())
        for deployment in rendered(agents=[AGENT])["Deployment"]:
            pod = deployment["spec"]["template"]["spec"]
            for container in pod["containers"]:
                self.assertTrue(container["securityContext"]["readOnlyRootFilesystem"])
                if "args" in container:
                    check_words(self, container["args"])
                for probe in ["startupProbe", "livenessProbe", "readinessProbe"]:
                    if probe in container:
                        self.assertIn(container[probe]["httpGet"]["path"], description["paths"])

    def test_an_agent_that_cannot_work_is_refused_by_name(self):
        for agent, says in [
            ({"name": "empty"}, "agent `empty` has no script"),
            ({"scripts": {"a.py": ""}}, "needs a name"),
            (AGENT | {"kinds": [], "autoscaling": {"enabled": True}}, "agent `resize` is scaled by the backlog"),
            (AGENT | {"image": {"repository": "own"}}, "agent `resize` needs image.tag"),
        ]:
            with self.assertRaisesRegex(ValueError, re.escape(says)):
                rendered(agents=[agent])

    def test_a_single_server_has_no_budget_that_blocks_a_drain(self):
        self.assertNotIn("PodDisruptionBudget", rendered(server={"replicas": 1}))


class Compose(unittest.TestCase):
    def setUp(self):
        self.services = yaml.safe_load((PACKAGING / "docker" / "compose.yaml").read_text())["services"]

    def test_the_commands_are_those_of_the_program(self):
        check_words(self, self.services["agent"]["command"])
        (script,) = self.services["tokens"]["command"]
        words = re.search(r"gristmill (token create [^>]*)", script).group(1).split()
        known = options_of(words[:2])
        for word in words:
            if word.startswith("--"):
                self.assertIn(word, known)

    def test_the_agents_do_not_get_the_signing_keys(self):
        folders = {name: self.services[name].get("volumes", []) for name in ["tokens", "server", "agent"]}
        holders = [name for name, volumes in folders.items() if any(volume.startswith("trust:") for volume in volumes)]
        self.assertEqual(holders, ["tokens", "server"])

    def test_nothing_listens_beyond_this_machine(self):
        for name, service in self.services.items():
            for port in service.get("ports", []):
                self.assertTrue(port.startswith("127.0.0.1:"), name)


class Units(unittest.TestCase):
    def test_the_commands_are_those_of_the_program(self):
        for unit in (PACKAGING / "systemd").glob("*.service"):
            line = re.search(r"^ExecStart=/usr/bin/gristmill (.*)$", unit.read_text(), re.MULTILINE).group(1)
            check_words(self, line.split())

    def test_the_variables_are_those_of_the_program(self):
        known = run(os.environ["PROGRAM"], "--help").stdout
        for command in ["serve", "agent"]:
            known += run(os.environ["PROGRAM"], command, "--help").stdout
        for settings in (PACKAGING / "systemd").glob("*.env"):
            units = "".join(unit.read_text() for unit in (PACKAGING / "systemd").glob("*.service"))
            for name in re.findall(r"^#?([A-Z_]+)=", settings.read_text(), re.MULTILINE):
                self.assertTrue(name in known or f"${name}" in units, f"{settings.name}: {name}")


if __name__ == "__main__":
    unittest.main()
