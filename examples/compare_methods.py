"""
Which method is better, and how surely
======================================

Several methods with the same propensities and paired seeds. The differences of seeds are tested together.
"""

import matplotlib.pyplot as plt

import unskew as us
from unskew.debias import make_method
from unskew.metrics import holm, paired_test

data = us.load("synthetic", n_users=100, n_items=60)
options = {"learner": us.MF(dim=8), "learning_rate": 0.02}
propensity = us.Propensity(crossfit=2, **options).fit(data.train, seeds=4)

auc = {}
for name in ("naive", "snips", "dr-jl", "stable-dr", "att"):
    model = make_method(name, p_min=0.05, **options).fit(data.train, propensity=propensity, seeds=4)
    auc[name] = us.evaluate(model, data.test)["auc"]

tests = {name: paired_test(auc[name], auc["naive"]) for name in auc if name != "naive"}
adjusted = holm([test.p_value for test in tests.values()])
print(f"naive      AUC {auc['naive'].mean():.4f}")
for (name, test), p in zip(tests.items(), adjusted, strict=True):
    print(f"{name:10} AUC {auc[name].mean():.4f}, {test.low:+.4f} to {test.high:+.4f}, p = {p:.2f}")

# %%
# Where an interval has 0 inside, four seeds cannot tell the method from the naive model.

for line, test in enumerate(tests.values()):
    plt.plot([test.low, test.high], [line, line], linewidth=4)
    plt.plot(test.difference, line, "ko")
plt.axvline(0, color="grey")
plt.yticks(range(len(tests)), tests)
plt.xlabel("AUC, difference from the naive model (95 % interval)")
plt.tight_layout()
plt.show()
