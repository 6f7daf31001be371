"""What to know before believing a report."""

from __future__ import annotations

from tf_placer.command_line.reporting.report import Report


def remarks(report: Report) -> list[str]:
    """Sentences about what was cut short and what is a guess; none where nothing was."""
    problem = report.problem
    found = []
    if report.result.interrupted:
        found.append("The search was interrupted; this is the best it had found.")
    if problem.guessed_op_types:
        guesses = ", ".join(f"{op} x {count}" for op, count in problem.guessed_op_types.items())
        found.append(f"The cost of these ops is a guess: {guesses}.")
    if problem.estimated_sizes:
        rules = "; ".join(f"{count} {rule}" for rule, count in problem.estimated_sizes.items())
        count = sum(problem.estimated_sizes.values())
        found.append(f"The sizes of {count} tensors depend on data and are estimates: {rules}.")
    return found
