"""What of the papers can be run, what it needs, and what cannot be run here and why."""

from __future__ import annotations

from anyloss.studies.reproduce.text import columns

# Name, what it is, what it needs, about how long on one core.
HERE = (
    ("table1", "AnyLoss, Table 1: range of L", "nothing", "a second"),
    ("table6", "AnyLoss, Table 6: #1, #3, SLP and networks", "nothing", "3 minutes"),
    ("table7", "AnyLoss, Table 7, SLP: SMOTE, undersampling, #1, #3", "nothing", "1 minute"),
    ("table9", "AnyLoss, Table 9, SLP: learning curves, #1, #3", "nothing", "20 s"),
    ("table17", "AnyLoss, Table 17, SLP: #1 random, #3 breast cancer", "nothing", "20 s"),
    ("table17", "AnyLoss, Table 17, SLP: #4 diabetes", "--data, diabetes_100k", "3 minutes"),
    ("table18", "AnyLoss, Table 18, networks, clean: #1, #3", "nothing", "1 minute"),
    (
        "table15",
        "AnyLoss, Tables 3, 4, 15, Figure 4, SLP: the rebuilt sets",
        "--data, index.csv and paper/",
        "5 minutes",
    ),
    (
        "table16",
        "AnyLoss, Tables 3, 4, 16, Figure 4, networks, clean: the rebuilt sets",
        "--data, index.csv and paper/",
        "10 minutes",
    ),
)
LATER = (
    "AnyLoss, Table 8: learning time",
    "AnyLoss, Table 10: a residual network on MNIST",
    "AnyLoss, Tables 12 and 13, Figures 2, 3 and 5: the choice of L",
    "Bridging the Gap, Tables 1, 2 and 4",
    "surrogate F-beta: gradient paths, and imbalanced images",
)
NEVER = (
    ("AnyLoss, #2 Credit Card 2023", "568,630 rows of Kaggle are not at hand"),
    ("AnyLoss, 38 of the 102 sets", "not found, or their coding is unknown"),
    ("AnyLoss, Table 11", "Huge Titanic is not at hand"),
    ("AnyLoss, Tables 16, 18 as published", "one network served all folds and losses, not reset"),
    ("Bridging the Gap, Table 3", "the CocktailParty graphs are not at hand"),
    ("Bridging the Gap, adversarial baseline", "cubic in the batch, no public package to run"),
    ("MetricOpt, online F-measure", "no code at hand; never imitated"),
)


def listing() -> str:
    """The list as text."""
    return "\n".join(
        [
            "To run: anyloss reproduce NAME",
            "",
            columns(("name", "what", "needs", "about how long"), HERE),
            "",
            "Still to be written:",
            "",
            *(f"  {line}" for line in LATER),
            "",
            "Cannot be run here:",
            "",
            columns(("what", "why"), NEVER),
        ]
    )
