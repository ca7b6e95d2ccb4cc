"""The Helm chart: its values, its schema, and what its templates name. Where helm's library is installed, they are rendered."""

import json
import re
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml
from deploy_commands import CHART, ROOT, find_mistake, list_page_commands, read_yaml
from jsonschema_rs import Draft7Validator

from arriero import __version__
from arriero.config import VARIABLES

VALUES = read_yaml(CHART / "values.yaml")
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
TEMPLATES = sorted((CHART / "templates").iterdir())
OPENS, ENDS = {"if", "with", "range", "define", "block"}, {"end"}
NEEDED = {
    "image": {"repository": "shop", "tag": "1"},
    "store": {"existingSecret": "shop-store"},
    "migration": {"existingSecret": "shop-owner", "role": "shop"},
    "http": {"tls": {"existingSecret": "shop-tls"}},
}
ALL = {
    **NEEDED,
    "app": "shop:app",
    "workers": {"roles": ["scheduler", "agents", "supervisor", "http"], "agents": ["bank"]},
    "ingress": {"enabled": True, "host": "arriero.example.com", "className": "nginx", "tlsSecret": "public"},
    "networkPolicy": {
        "from": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "ingress-nginx"}}}],
        "egress": [{"ports": [{"protocol": "TCP", "port": 5432}]}],
    },
    "podMonitor": {"enabled": True, "tokenSecret": {"name": "scrape"}, "caSecret": {"name": "ca"}},
    "env": [{"name": "ARRIERO_TASKS_MAX", "value": "500"}],
}


def merge(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    merged = deepcopy(base)
    for key, value in over.items():
        merged[key] = merge(merged[key], value) if isinstance(value, dict) and key in merged else value
    return merged


def is_valid(over: dict[str, Any]) -> bool:
    return Draft7Validator(SCHEMA).is_valid(merge(VALUES, over))


@pytest.mark.parametrize("over", [NEEDED, ALL], ids=["needed", "all"])
def test_the_schema_accepts_values_that_name_what_is_required(over: dict[str, Any]) -> None:
    assert is_valid(over)


@pytest.mark.parametrize(
    "over",
    [
        {"image": {"repository": ""}},
        {"store": {"existingSecret": ""}},
        {"migration": {"existingSecret": ""}},
        {"http": {"tls": {"existingSecret": ""}}},
        {"http": {"port": 80}},
        {"workers": {"roles": ["worker"]}},
        {"worker": {"replicas": 2}},
        {"ingress": {"enabled": True}},
        {"podMonitor": {"enabled": True}},
    ],
    ids=json.dumps,
)
def test_the_schema_refuses_values_that_cannot_work(over: dict[str, Any]) -> None:
    assert not is_valid(merge(NEEDED, over))


def test_the_chart_is_for_the_release_that_is_made() -> None:
    about = read_yaml(CHART / "Chart.yaml")
    assert about["name"] == CHART.name
    heading = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert heading is not None
    assert about["appVersion"] in {heading[1], __version__}


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_the_actions_of_a_template_are_balanced(path: Path) -> None:
    depth = 0
    text = path.read_text()
    assert text.count("{{") == text.count("}}")
    for word in re.findall(r"\{\{-?\s*(\w+)", text):
        depth += (word in OPENS) - (word in ENDS)
        assert depth >= 0
    assert depth == 0


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_a_template_reads_only_values_that_there_are(path: Path) -> None:
    for name in re.findall(r"\.Values((?:\.\w+)+)", path.read_text()):
        value: Any = VALUES
        for key in name[1:].split("."):
            assert isinstance(value, dict) and key in value, f".Values{name}"
            value = value[key]


def test_a_template_names_only_commands_and_paths_that_exist() -> None:
    paths = json.loads((ROOT / "docs" / "reference" / "openapi.json").read_text())["paths"]
    for template in TEMPLATES:
        text = template.read_text()
        for args in re.findall(r"^ +args:\n((?: +(?:- .*|\{\{.*)\n)+)", text, re.MULTILINE):
            words = [word for word in re.findall(r"^ +- (.*)$", args, re.MULTILINE) if "{{" not in word]
            assert words, template.name
            assert find_mistake([word for word in words if word not in {"--roles", "--agents"}]) == "", template.name
        for path in re.findall(r"\bpath: (/\w[^\s,}]*)", text):
            assert path in paths, path
        for words in list_page_commands(text) if template.suffix == ".txt" else []:
            assert find_mistake(words) == "", words


# --- rendered
@pytest.fixture(params=[NEEDED, ALL], ids=["needed", "all"])
def objects(request: pytest.FixtureRequest) -> list[dict[str, Any]]:
    """What the chart makes for the release arriero, whose Services give Kubernetes' variables the worst names."""
    helm = pytest.importorskip(
        "helm_python", reason="helm's library is not installed; run: python -m pip install helm-python-sdk"
    )
    with helm.Chart.load(CHART) as chart:
        rendered = chart.render(request.param, name="arriero", namespace="shop")
    assert [found for found in helm.lint(CHART, request.param, strict=True)["messages"] if found["severity"] > 1] == []
    texts = [text for path, text in rendered.items() if path.endswith(".yaml")]
    return [found for text in texts for found in yaml.safe_load_all(text) if found]


def list_pods(objects: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {
        found["metadata"]["name"]: found["spec"]["template"]
        for found in objects
        if found["kind"] in {"Deployment", "Job"}
    }


def test_each_pod_is_confined_and_no_variable_of_a_service_is_taken_for_a_setting(
    objects: list[dict[str, Any]],
) -> None:
    pods = list_pods(objects)
    assert set(pods) == {"arriero-worker", "arriero-http", "arriero-migration"}
    for name, pod in pods.items():
        spec, container = pod["spec"], pod["spec"]["containers"][0]
        assert spec["enableServiceLinks"] is False, name
        assert spec["automountServiceAccountToken"] is False, name
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert "memory" in container["resources"]["limits"]
        assert find_mistake(container["args"]) == ""
        names = [variable["name"] for variable in container["env"]]
        assert {found for found in names if found.startswith("ARRIERO_")} <= set(VARIABLES)
        store = next(variable for variable in container["env"] if variable["name"] == "ARRIERO_STORE")
        assert set(store["valueFrom"]) == {"secretKeyRef"}


def test_whoever_serves_has_probes_a_certificate_and_its_own_address_as_a_name(objects: list[dict[str, Any]]) -> None:
    for pod in list_pods(objects).values():
        container = pod["spec"]["containers"][0]
        serves = container["args"][0] == "run" and "http" in container["args"][2].split(",")
        assert serves == ("readinessProbe" in container) == ("livenessProbe" in container)
        assert serves == ("arriero/serves" in pod["metadata"]["labels"])
        if serves:
            env = {variable["name"]: variable.get("value") for variable in container["env"]}
            names = [variable["name"] for variable in container["env"]]
            assert names.index("POD_IP") < names.index(
                "ARRIERO_HTTP_HOSTS"
            )  # else Kubernetes leaves $(POD_IP) as it is
            assert "$(POD_IP)" in env["ARRIERO_HTTP_HOSTS"].split(",")
            assert env["ARRIERO_HTTP_PORT"] == str(container["ports"][0]["containerPort"])
            mounted = {mount["mountPath"] for mount in container["volumeMounts"]}
            assert env["ARRIERO_HTTP_TLS_CERT"].rpartition("/")[0] in mounted


def test_the_service_and_each_budget_select_pods_that_there_are(objects: list[dict[str, Any]]) -> None:
    pods = [pod["metadata"]["labels"] for pod in list_pods(objects).values()]
    selectors = [found["spec"]["selector"] for found in objects if found["kind"] == "Service"]
    selectors += [
        found["spec"]["selector"]["matchLabels"] for found in objects if found["kind"] == "PodDisruptionBudget"
    ]
    assert len(selectors) == 3
    for selector in selectors:
        chosen = [labels for labels in pods if selector.items() <= labels.items()]
        assert chosen
        assert all(labels["app.kubernetes.io/component"] != "migration" for labels in chosen)


def test_a_policy_lets_nobody_reach_a_pod_but_at_the_port_of_the_api(objects: list[dict[str, Any]]) -> None:
    policies = {found["metadata"]["name"]: found["spec"] for found in objects if found["kind"] == "NetworkPolicy"}
    every, http = policies["arriero"], policies["arriero-http"]
    assert "Ingress" in every["policyTypes"]
    assert "ingress" not in every  # nobody
    assert ("Egress" in every["policyTypes"]) == ("egress" in every)
    assert http["ingress"][0]["ports"] == [{"protocol": "TCP", "port": "https"}]
    for pod in list_pods(objects).values():
        labels = pod["metadata"]["labels"]
        assert every["podSelector"]["matchLabels"].items() <= labels.items()
        serves = http["podSelector"]["matchLabels"].items() <= labels.items()
        assert serves == ("ports" in pod["spec"]["containers"][0])
