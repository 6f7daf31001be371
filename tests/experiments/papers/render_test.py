"""What the page and the CSV say of a row made by hand."""

import csv
import dataclasses
import io

import pytest

from experiments.papers.render import as_csv, as_markdown
from tests.experiments.papers.by_hand import DESCRIPTION, FILLED


def lines(description=DESCRIPTION):
    return as_markdown(description, [FILLED], "the command").splitlines()


def test_the_page_has_each_method_beside_the_paper():
    page = lines()
    # Best known is 2.0: 2.5 is 1.25 of it, the mean of random 1.5.
    assert "| dense_small on k40x2 | 2 | 1 | 1.250 | 1.250 | 1.500 | 1.000 | - |" in page
    assert "| one_accelerator | 2.5 |  | 1.250 |  |  | GPU: OOM |" in page
    assert "| random | 3 | 1 | 1.500 | 2.00 | 20 | RL: 2 |" in page
    assert "| local_search | 2 † |  | 1.000 | 0.00 | 7 |  |" in page
    assert "|  |  |  |  |  |  | New: 1.5 |" in page
    assert "local_search found nothing that fits with 1 of 2 seeds." in page
    assert "list_schedule was not run: no library; install it." in page
    assert "Why: not explained yet" in page


def test_a_note_stands_below_what_it_explains_and_a_table_that_goes_on_says_so():
    other = dataclasses.replace(DESCRIPTION.rows[0], workload="two_towers")
    noted = dataclasses.replace(
        DESCRIPTION,
        rows=(*DESCRIPTION.rows, other),
        notes={"dense_small on k40x2": "One device is enough."},
    )
    page = lines(noted)
    assert "Why: One device is enough." in page
    assert "Not complete: 1 of 2 rows are done." in page
    assert not any(line.startswith("Not complete") for line in lines())


def test_a_column_that_is_a_method_with_settings_says_so():
    variant = dataclasses.replace(
        DESCRIPTION,
        variants={"local_search": "memetic"},
        settings={"local_search": {"chains": 1, "levels": 2}},
    )
    assert "- local_search: `memetic` with `chains=1 levels=2`" in lines(variant)


def test_the_csv_has_a_line_for_each_method_and_each_column_that_is_the_papers_alone():
    rows = list(csv.DictReader(io.StringIO(as_csv(DESCRIPTION, [FILLED]))))
    assert [row["method"] for row in rows] == ["one_accelerator", *DESCRIPTION.methods, ""]
    random = rows[2]
    assert [float(random[name]) for name in ("mean_s", "spread_s", "best_s", "of_best_known")] == [
        3,
        1,
        2,
        1.5,
    ]
    assert (random["peak_bytes"], random["published_as"], random["published_s"]) == (str(2**31), "RL", "2.0")
    assert (rows[3]["capped"], rows[3]["fitting"], rows[3]["seeds"]) == ("True", "1", "2")
    assert (rows[4]["status"], rows[4]["mean_s"]) == ("NOT_RUN", "")
    assert rows[0]["published_s"] == "inf"
    assert (rows[5]["published_as"], float(rows[5]["published_s"])) == ("New", pytest.approx(1.5))
