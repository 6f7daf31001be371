"""A table's description is taken as it is written, and what is wrong with one is one line that names it."""

import math

import pytest

from experiments.papers.description import TABLES, read_description
from tf_placer.errors import InputError

GOOD = """
title = "A table"
source = "A paper"
methods = ["single", "random"]
once = ["single"]
evaluations = 25
cap_s = 60
seeds = [3, 4]
[published_as]
one_accelerator = "GPU"
random = "RL"
[settings.random]
[[row]]
workload = "inception_v3"
cluster = "k40x2"
quick = "dense_small"
published = { GPU = "OOM", RL = 2.5, Other = 1 }
[[row]]
workload = "resnet50"
cluster = "p100x2"
[notes]
"resnet50 on p100x2" = "Because."
"""


def read(tmp_path, text):
    (tmp_path / "table.toml").write_text(text)
    return read_description(tmp_path / "table.toml")


def test_what_is_written_is_read(tmp_path):
    description = read(tmp_path, GOOD)
    assert (description.name, description.evaluations, description.seeds) == ("table", 25, (3, 4))
    assert description.rows[0].published == {"GPU": math.inf, "RL": 2.5, "Other": 1.0}
    assert description.columns == ("GPU", "RL", "Other")
    assert [description.seeds_of(method) for method in description.methods] == [(3,), (3, 4)]


def test_a_column_can_be_a_method_with_settings_of_its_own(tmp_path):
    text = GOOD.replace('"random"]', '"random", "few"]').replace(
        "[settings.random]",
        """
[variants]
few = "local_search"
[settings.few]
chains = 1
""",
    )
    description = read(tmp_path, text)
    assert [description.method_of(column) for column in description.methods] == [
        "single",
        "random",
        "local_search",
    ]
    with pytest.raises(InputError, match="no method is called 'local_serch'"):
        read(tmp_path, text.replace('few = "local_search"', 'few = "local_serch"'))
    with pytest.raises(InputError, match="it has no method 'fewer'"):
        read(tmp_path, text.replace('few = "local_search"', 'fewer = "local_search"'))


def test_a_quick_table_is_a_tenth_on_what_stands_for_the_rows(tmp_path):
    quick = read(tmp_path, GOOD).quick()
    assert [row.name for row in quick.rows] == ["dense_small on k40x2"]
    assert (quick.evaluations, quick.cap_s, quick.seeds) == (2, 6.0, (3,))
    assert quick.columns == ()


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('"inception_v3"', '"inception_v"', "no workload is called 'inception_v'"),
        ('"dense_small"', '"dense_smal"', "no workload is called 'dense_smal'"),
        ('"k40x2"', '"k40x3"', "unknown cluster preset 'k40x3'"),
        ('["single", "random"]', '["single", "random", "rndom"]', "no method is called 'rndom'"),
        ('["single", "random"]', '["single", "single", "random"]', "the same method twice"),
        ('"resnet50 on p100x2"', '"resnet50 on p100x4"', "no row 'resnet50 on p100x4'"),
        ('random = "RL"', 'random = "LR"', "no column of the paper 'LR'"),
        ('random = "RL"', 'randm = "RL"', "no method 'randm'"),
        ('once = ["single"]', 'once = ["sngle"]', "no method 'sngle'"),
        ("[settings.random]", "[settings.random]\nbatch = 1\nwidth = 2", "has no setting"),
        ("RL = 2.5", "RL = -2.5", "published 'RL' is -2.5"),
        ("RL = 2.5", 'RL = "oom"', "published 'RL' is 'oom'"),
        ("evaluations = 25", "evaluations = 0", "evaluations is 0"),
        ("evaluations = 25", "", "has no 'evaluations'"),
        ("seeds = [3, 4]", "seeds = []", "it has no seed"),
        ("seeds = [3, 4]", "seeds = 3", "seeds is 3; give a list"),
        ("cap_s = 60", "cap_s = 60\ncapp = 1", "no key 'capp'"),
        ('cluster = "p100x2"', 'clustr = "p100x2"', "no key 'clustr'"),
        ('source = "A paper"', "source = 5", "source is 5"),
        ("[notes]", "[notes", "it is no TOML"),
    ],
)
def test_a_mistake_is_one_line_that_names_file_and_word(old, new, told, tmp_path):
    assert old in GOOD
    with pytest.raises(InputError) as error:
        read(tmp_path, GOOD.replace(old, new, 1))
    message = str(error.value)
    assert told in message and str(tmp_path / "table.toml") in message
    assert len(message.splitlines()) == 1 and ";" in message


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(InputError, match="No such file"):
        read_description(tmp_path / "table.toml")


UNPUBLISHED = ("go_generalization", "plain_search")


def test_every_table_has_something_quick_and_that_of_a_paper_its_numbers():
    files = sorted(TABLES.glob("*.toml"))
    assert [path.stem for path in files] == [
        "colocrl_2017",
        "go_2020",
        "go_generalization",
        "hdp_2018",
        "mars_2021",
        "placeto_2019",
        "plain_search",
    ]
    for path in files:
        description = read_description(path)  # which also knows the names
        assert all(bool(row.published) == (path.stem not in UNPUBLISHED) for row in description.rows)
        assert 0 < len(description.quick().rows) <= len(description.rows)
