"""Studies are taken as they are written, the shipped ones are good, and what is wrong is one line that names it."""

import dataclasses

import pytest

from experiments.curves.every_agent import with_every_agent
from experiments.curves.run_study import STUDIES
from experiments.curves.study import read_study
from tf_placer.errors import InputError
from tf_placer.search import methods
from tf_placer.search.spec import Kind

GOOD = """
title = "A study"
about = "What is compared."
evaluations = 100
cap_s = 60
seeds = [3, 4]
window = 8
quick_evaluations = 10
quick_seeds = 1
against = "shipped"
[quick_settings]
hdp = { placements = 4, groupings = 2 }
[[row]]
workload = "inception_v3"
cluster = "k40x2"
quick = "dense_small"
[[row]]
workload = "resnet50"
cluster = "p100x2"
[[candidate]]
name = "shipped"
method = "hdp"
[[candidate]]
name = "many groups"
asks = "How many groups?"
method = "hdp"
settings = { placements = 3 }
of_units = ["num_groups"]
variant = "colocation_groups"
only = ["inception_v3 on k40x2"]
[[candidate]]
name = "elsewhere"
method = "random"
only = ["resnet50 on p100x2"]
"""


def read(tmp_path, text):
    (tmp_path / "study.toml").write_text(text)
    study = read_study(tmp_path / "study.toml")
    study.check_names()
    return study


def test_what_is_written_is_read(tmp_path):
    study = read(tmp_path, GOOD)
    assert (study.name, study.seeds, study.rows[0].quick) == ("study", (3, 4), "dense_small")
    assert (study.candidates[1].of_units, study.candidates[1].asks) == (("num_groups",), "How many groups?")


def test_a_quick_study_is_of_what_stands_for_the_rows(tmp_path):
    quick = read(tmp_path, GOOD).quick()
    assert [row.name for row in quick.rows] == ["dense_small on k40x2"]
    assert (quick.evaluations, quick.seeds) == (10, (3,))
    shipped, many = quick.candidates  # the third is run elsewhere alone
    assert shipped.settings == {"placements": 4, "groupings": 2}
    assert (many.settings, many.only) == ({"placements": 3, "groupings": 2}, ("dense_small on k40x2",))


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("[3, 4]", "[3, 3]", "it has the same seed twice; give each once"),
        ("[3, 4]", "3", "seeds is 3; give a list"),
        ("window = 8", "window = 0", "window is 0; "),
        ("cap_s = 60", "", "the study has no 'cap_s'; give one"),
        ("cap_s = 60", "cap_s = 60\nseed = 1", "the study has no key 'seed'; did you mean 'seeds' or"),
        ('"many groups"', '"shipped"', "it has the same candidate twice; give each once"),
        ('against = "shipped"', 'against = "shiped"', "it has no candidate 'shiped'; did you mean 'shipped'?"),
        ('"inception_v3"\n', '"inception_v"\n', "no workload is called 'inception_v'"),
        ('"colocation_groups"', '"groups"', "variant of candidate 'many groups' is 'groups'; "),
        ('["num_groups"]', '["groups_of"]', "config: method 'hdp' has no setting 'groups_of'"),
        ('["resnet50 on p100x2"]', '["resnet50"]', "candidate 'elsewhere' is run on 'resnet50', which is no row"),
        ("title", "[title", "it is no TOML"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_one_line(tmp_path, old, new, told):
    assert old in GOOD
    with pytest.raises(InputError) as caught:
        read(tmp_path, GOOD.replace(old, new, 1))
    assert told in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("path", sorted(STUDIES.glob("*.toml")), ids=lambda path: path.stem)
def test_the_shipped_studies_are_good(path):
    study = read_study(path)
    study.check_names()
    study.quick().check_names()
    assert study.seeds == (100, 101, 102, 103, 104)
    assert len(study.quick().rows) == 1


def test_every_agent_joins_by_itself(monkeypatch):
    study = with_every_agent(read_study(STUDIES / "learning.toml"))
    names = [one.name for one in study.candidates]
    learned = {spec.name for spec in methods.SPECS if spec.kind == Kind.LEARNED}
    assert learned <= set(names) and {"random", "cem", "list_schedule", "local_search", "single"} <= set(
        names
    )
    new = dataclasses.replace(methods.find("hdp"), name="newcomer")
    monkeypatch.setitem(methods._METHODS, "newcomer", new)
    assert "newcomer" in [
        one.name for one in with_every_agent(read_study(STUDIES / "learning.toml")).candidates
    ]
