"""`st3 report` and `st3 plot`: they print the path of the file that they write."""


def test_report_writes_the_page_and_prints_its_path(st3, finished, tmp_path):
    answer = st3("report", finished, "--out", "page.html")
    assert (answer.exit_code, answer.stdout) == (0, "page.html\n")
    assert "<html" in (tmp_path / "page.html").read_text()


def test_plot_draws_runs_and_prints_the_path(st3, finished, tmp_path):
    answer = st3("plot", finished, finished / "dense")
    assert (answer.exit_code, answer.stdout) == (0, "runs.png\n"), answer.output
    assert (tmp_path / "runs.png").read_bytes().startswith(b"\x89PNG")


def test_a_folder_without_a_run_is_refused(st3, tmp_path):
    for command in ("report", "plot"):
        answer = st3(command, tmp_path / "nothing")
        assert answer.exit_code == 1
        assert answer.stderr.startswith("error: ")
        assert str(tmp_path / "nothing") in answer.stderr
