"""The report says what the numbers say, whole or with parts missing, in one file that needs nothing."""

from __future__ import annotations

import copy
import re
from html.parser import HTMLParser
from typing import Any

import pytest

from unskew.report import render_run_report
from unskew.report.run_tables import methods_table

SECTIONS = ("top", "verdict", "propensities", "weights", "methods", "truth", "learning", "settings")
FIGURES = (
    "overview",
    "reliability",
    "weights",
    "methods",
    "differences",
    "truth",
    "learning",
)
VOID = {"meta", "br", "img", "input", "hr", "link"}


class Page(HTMLParser):
    """Ids, links, tables, figures and captions of a page; unbalanced tags are an error."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.open: list[str] = []
        self.rows: dict[str, list[tuple[str, str | None]]] = {}
        self.captions: list[str] = []
        self.text = ""
        self._row: str | None = None
        self.feed(text)
        assert not self.open, self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if given.get("id"):
            self.ids.append(str(given["id"]))
        if tag == "a":
            self.links.append(str(given["href"]))
        if tag == "td" and self._row is not None:
            self.rows[self._row].append(("", given.get("data-value")))
        if tag == "figcaption":
            self.captions.append("")
        if tag == "tr":
            self._row = None
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if given.get("id"):
            self.ids.append(str(given["id"]))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "th" and self._row is None and "tbody" in self.open:
            self._row = data
            while self._row in self.rows:
                self._row += " again"
            self.rows[self._row] = []
        if self.open and self.open[-1] == "td" and self._row is not None:
            shown, value = self.rows[self._row][-1]
            self.rows[self._row][-1] = (shown + data, value)
        if "figcaption" in self.open:
            self.captions[-1] += data
        if not {"svg", "style", "script"} & set(self.open):
            self.text += data


@pytest.fixture(scope="module")
def page(inputs: dict[str, Any]) -> str:
    return render_run_report(**inputs)


@pytest.fixture(scope="module")
def quick(inputs: dict[str, Any]) -> dict[str, Any]:
    """The same run with two metrics and no learning curves: as much to say, less to draw."""
    metrics = dict(inputs["metrics"])
    for part in ("methods", "comparison"):
        metrics[part] = {
            key: {metric: of[metric] for metric in ("auc", "dcg@4")} for key, of in metrics[part].items()
        }
    return {**inputs, "metrics": metrics, "histories": {}}


@pytest.fixture(scope="module")
def parsed(page: str) -> Page:
    return Page(page)


def test_every_section_and_figure_is_there_once(parsed: Page) -> None:
    for name in (*SECTIONS, *(f"figure-{figure}" for figure in FIGURES)):
        assert parsed.ids.count(name) == 1, name
    assert len(parsed.ids) == len(set(parsed.ids))


def test_every_link_leads_to_a_section_of_the_page(parsed: Page) -> None:
    assert parsed.links
    assert all(link.startswith("#") and link[1:] in parsed.ids for link in parsed.links)


def test_every_figure_has_a_sentence_about_this_run(parsed: Page) -> None:
    assert len(parsed.captions) == len(FIGURES)
    for caption in parsed.captions:
        assert re.fullmatch(r"[A-Z].*\.", caption.strip(), re.DOTALL)
        assert len(caption) > 60


def test_the_page_needs_nothing_from_outside(page: str) -> None:
    namespaces = re.sub(r'xmlns(:\w+)?="[^"]*"', "", page)
    assert not re.findall(r"https?:|//[a-z]", namespaces)
    for forbidden in ("<link", "@import", "src=", "@font-face", "javascript:", "fetch(", "XMLHttp"):
        assert forbidden not in page
    assert page.count("<script") == 1
    assert set(re.findall(r"url\((.)", page)) <= {"#"}


def test_the_first_screen_is_one_sentence_on_the_cost_and_a_picture(
    inputs: dict[str, Any], page: str
) -> None:
    top = page[page.index('id="top"') : page.index('id="verdict"')]
    assert "<h1>IPS on synthetic</h1>" in top
    assert top.count('<p class="cost') == 1
    assert top.index('class="cost') < top.index('id="figure-overview"')
    assert 'class="findings"' not in top
    assert "<title>IPS on synthetic · unskew run</title>" in page


def test_light_dark_narrow_and_paper_have_their_styles(page: str) -> None:
    for media in ("screen and (prefers-color-scheme: dark)", "screen and (max-width: 700px)", "print"):
        assert f"@media {media}" in page
    drawn = "".join(re.findall(r"<svg.*?</svg>", page, re.DOTALL))
    assert not re.search(r"#[0-9a-f]{6}", drawn), "colours are the page's"


def test_files_are_called_by_their_path_and_impressions_are_no_pairs(quick: dict[str, Any]) -> None:
    metrics = copy.deepcopy(quick["metrics"])
    metrics["data"] |= {"name": "files", "space": "impressions"}
    config = {**quick["config"], "options": {"train": "/data/shop/log/*.parquet"}}
    text = render_run_report(**{**quick, "metrics": metrics, "config": config})
    assert "<h1>IPS on log/*.parquet</h1>" in text
    page = Page(text)
    assert "of the impressions that were clicked" in page.text
    shown = page.text[: page.text.index("How far off are the estimates?")]
    assert not re.search(r"\bpairs?\b", shown), re.findall(r".{30}\bpairs?\b.{30}", shown)


@pytest.mark.parametrize(
    ("row", "key"),
    [
        ("ECE", "ece"),
        ("ECE of pure noise", "ece_floor"),
        ("WCE", "wce"),
        ("NLL", "nll"),
        ("Brier", "brier"),
        ("AUC of clicks", "auc"),
        ("Mean ÷ base rate", "mean_over_base_rate"),
        ("Weight check", "weight_check"),
        ("Effective sample size", "effective_sample_size"),
        ("Clipped", "clipped"),
        ("Clipped mass", "clipped_mass"),
    ],
)
def test_the_table_of_propensities_shows_the_metrics(
    inputs: dict[str, Any], parsed: Page, row: str, key: str
) -> None:
    for (shown, value), kind in zip(parsed.rows[row], ("raw", "calibrated"), strict=False):
        exact = inputs["metrics"]["propensity"][kind][key]
        assert float(str(value)) == exact
        text = shown.split()[0].replace(",", "")
        scale, decimals = 100 if key.startswith("clipped") else 1, len(text.partition(".")[2])
        assert float(text) == pytest.approx(scale * exact, abs=0.5 * 10**-decimals + 1e-12)


def test_the_table_of_methods_shows_means_rails_and_marks(inputs: dict[str, Any], parsed: Page) -> None:
    metrics = inputs["metrics"]
    cells = parsed.rows["DCG@4"]
    values = [float(str(value)) for _, value in cells]
    means = [metrics["methods"][key]["dcg@4"]["mean"] for key in metrics["methods"]]
    assert values == [metrics["rails"]["random"]["dcg@4"], *means, metrics["rails"]["oracle"]["dcg@4"]]
    tests = metrics["comparison"]
    for cell, key in zip(cells[2:4], ("ips_raw", "ips"), strict=True):
        test = tests[key]["dcg@4"]
        assert test["p_holm"] < 0.05
        assert (test["difference"] > 0) == (float(str(cell[1])) > means[0])


@pytest.mark.parametrize("name", ["NLL (lower is better)", "Predicted ÷ actual rate (1 is right)"])
def test_a_level_that_comes_nearer_is_marked_as_better_though_its_number_falls(
    inputs: dict[str, Any], name: str
) -> None:
    metrics = inputs["metrics"]
    table = methods_table(metrics, "t")
    (row,) = [row for row in table.cells if row[0].text == name]
    naive, calibrated = row[2], row[4]
    assert calibrated.value is not None
    assert naive.value is not None
    assert calibrated.value < naive.value
    assert (naive.mark, calibrated.mark) == ("", "▲")


@pytest.mark.parametrize(
    "missing", [("truth",), ("methods",), ("comparison", "rails", "labels", "protocol", "p_min")]
)
def test_a_part_that_is_missing_is_left_out(quick: dict[str, Any], missing: tuple[str, ...]) -> None:
    metrics = {name: value for name, value in quick["metrics"].items() if name not in missing}
    ids = Page(render_run_report(**{**quick, "metrics": metrics})).ids
    assert ("figure-truth" in ids) == ("truth" not in missing)
    assert ("figure-methods" in ids) == ("methods" not in missing)
    assert ("figure-differences" in ids) == (not {"methods", "comparison"} & set(missing))
    assert "figure-reliability" in ids
    assert "figure-learning" not in ids


def test_a_model_that_learned_nothing_is_marked(quick: dict[str, Any]) -> None:
    told = {"ips": [{"network": "imputation", "reason": "flat", "seeds": 3, "of": 10}], "naive": []}
    page = render_run_report(**{**quick, "metrics": {**quick["metrics"], "collapsed": told}})
    assert "IPS, calibrated ⚠" in page
    assert "Naive ⚠" not in page
    assert "learned nothing in 3 of 10 seeds" in page


@pytest.mark.parametrize("nothing", [None, float("nan")])
def test_numbers_that_are_missing_are_shown_as_missing(quick: dict[str, Any], nothing: float | None) -> None:
    metrics = {
        **quick["metrics"],
        "propensity": _without_numbers(quick["metrics"]["propensity"], nothing),
        "methods": _without_numbers(quick["metrics"]["methods"], nothing),
        "comparison": _without_numbers(quick["metrics"]["comparison"], nothing),
        "truth": _without_numbers(quick["metrics"]["truth"], nothing),
        "rails": _without_numbers(quick["metrics"]["rails"], nothing),
    }
    text = render_run_report(**{**quick, "metrics": metrics})
    assert Page(text).rows["AUC"][1][0].split()[0] == "–"
    assert not re.search(r"\bnan\b|\bNone\b", Page(text).text)
    assert not re.search(r'[ "]nan[ "]', text)


def _without_numbers(value: Any, nothing: float | None) -> Any:
    if isinstance(value, dict):
        return {key: _without_numbers(inner, nothing) for key, inner in value.items()}
    if isinstance(value, list):
        return [_without_numbers(inner, nothing) for inner in value]
    return nothing if isinstance(value, (int, float)) else value


def test_names_from_the_data_cannot_become_markup(quick: dict[str, Any]) -> None:
    hostile = "<script>alert(1)</script>"
    metrics = copy.deepcopy(quick["metrics"])
    metrics["data"]["name"] = metrics["labels"][0] = hostile
    metrics["methods"] = {hostile: metrics["methods"]["naive"], **metrics["methods"]}
    config = {**quick["config"], hostile: hostile, "calibrator": hostile}
    page = render_run_report(**{**quick, "metrics": metrics, "config": config})
    assert page.count("<script") == 1
    assert "alert(1)</script>" not in page


def test_a_bare_minimum_is_enough() -> None:
    text = render_run_report(metrics={}, config={}, sketches={}, histories={})
    assert "No propensities were evaluated." in Page(text).text
    assert "no clicked pairs" in text


def test_the_spread_of_members_is_shown_where_there_are_members(quick: dict[str, Any]) -> None:
    spread = {"method": "deep-ensemble", "median": 0.0123, "relative": 0.17}
    page = Page(render_run_report(**{**quick, "metrics": {**quick["metrics"], "spread": spread}}))
    assert "The members (deep-ensemble) disagree about a pair" in page.text
    assert "0.0123" in page.text
    assert "17 %" in page.text
    without = Page(render_run_report(**{**quick, "metrics": {**quick["metrics"], "spread": None}}))
    assert "deep-ensemble" not in without.text


def test_fields_and_values_are_shown_where_models_read_features(quick: dict[str, Any]) -> None:
    def field(name: str, low: float) -> dict[str, Any]:
        loss = {"mean": low + 0.01, "low": low, "high": low + 0.02, "seeds": [low]}
        return {"field": name, "kind": "category", "auc": loss, "nll": loss}

    def value(name: str, level: float | None, q_value: float | None, *, off: bool) -> dict[str, Any]:
        numbers = {"rows": 120, "predicted": 0.5, "actual": 0.25, "level": level, "low": 1.5, "high": None}
        return {"field": "<b>", "value": name, **numbers, "excess": 30.0, "q_value": q_value, "off": off}

    fields = {
        "conversion": {
            "judged_on": "test set",
            "importance": {
                "auc": 0.71,
                "rows": 10_000,
                "is_sample": True,
                "fields": [field("<script>$国", 0.02), field("noise", -0.01)],
            },
            "values": 3,
            "values_off": 1,
            "worst_values": [
                value("de", 2.0, 0.001, off=True),
                value("fr", 1.1, 0.4, off=False),
                value("us", None, None, off=False),
            ],
        },
        "propensity": {
            "judged_on": "held-out rows",
            "importance": {"auc": None, "rows": 8, "is_sample": False, "fields": []},
            "values": 0,
            "values_off": 0,
            "worst_values": [],
        },
    }
    text = render_run_report(**{**quick, "metrics": {**quick["metrics"], "fields": fields}})
    page = Page(text)
    assert {"fields", "figure-fields"} <= set(page.ids)
    assert "#fields" in page.links
    assert text.count("<script") == 1
    assert "too few rows to tell" in text
    (caption,) = (each for each in page.captions if "permuted" in each)
    assert "test set, AUC 0.710 on a sample of 10,000 rows before a field is permuted" in caption
    assert "held-out rows, AUC – on 8 rows before" in caption
    assert "1 of 3 values off by more than 10 % beyond chance (test set)" in page.text
    shown = {name: cells for name, cells in page.rows.items() if name.startswith("<b> = ")}
    assert [cells[3][0].split()[0] for cells in shown.values()] == ["2.00", "1.10", "–"]
    section = text[text.index('<section id="fields">') : text.index('<section id="settings">')]
    assert re.findall(r'<span class="mark">(.)</span>', section) == ["✗", "?"]
    assert "fields" not in Page(render_run_report(**quick)).ids
