"""From a log to honest propensities and a debiased conversion model."""

import unskew as us

data = us.load("synthetic", n_users=100, n_items=80)  # or us.read_log("clicks.parquet", user=…, item=…, …)

propensity = us.Propensity(backbone=us.MF(), calibrator=us.Platt(), crossfit=3, learning_rate=0.01)
propensity.fit(data.train, seeds=3)
figures = propensity.diagnose()["calibrated"]
print(f"propensities: ECE {figures['ece']:.3f} (noise {figures['ece_floor']:.3f}), AUC {figures['auc']:.3f}")

model = us.MRDR(backbone=us.MF(), p_min=0.05, learning_rate=0.01)
model.fit(data.train, propensity=propensity, seeds=3)
for metric, seeds in us.evaluate(model, data.test).items():
    print(f"{metric:9} {seeds.mean():.3f} ± {seeds.std(ddof=1):.3f}")
