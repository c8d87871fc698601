"""Runs examples on the Python binding of Arm's reference model, which may end its process.

It is started by its path, without tosajax, which takes longer to import than most calls to run. One
pickled request comes on stdin: the content of a .tosa file, and a list of inputs for each example.
Each example has one pickled answer on stdout: the name of its status, and its outputs. The first
example that is not valid ends the run. Messages of the model go to stderr.
"""

from __future__ import annotations

import os
import pickle
import sys


def main() -> None:
    """Answers one request."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # the model writes some messages to stdout
    try:
        import tosa_reference_model
    except ImportError as error:
        sys.exit(str(error))
    content, examples = pickle.load(sys.stdin.buffer)
    for inputs in examples:
        try:
            outputs, outcome = tosa_reference_model.run(content, inputs)
            status = outcome.name.removeprefix("TOSA_")
        except ValueError as error:
            # The graph is illegal for all inputs.
            print(error, file=sys.stderr)
            outputs, status = [], "ERROR"
        pickle.dump((status, outputs), answers)
        # Before the next example, which may end the process.
        answers.flush()
        if status != "VALID":
            return


if __name__ == "__main__":
    main()
