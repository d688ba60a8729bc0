"""Expected values of tests/engine/step/metric_values_test.cpp, by scikit-learn: pip install scikit-learn."""
import numpy as np
from sklearn import metrics as sk

N, C = 300, 6  # class 5 never occurs, as a label or as a prediction
i, c = np.arange(N)[:, None], np.arange(C)[None, :]
labels = (i[:, 0] * 7 + i[:, 0] // 3) % 5
logits = 2 * np.sin(0.37 * (i * C + c) + 0.2 * i * i) + 0.9 * (c == labels[:, None]) - 10.0 * (c == 5)
logits = logits.astype(np.float32)
predicted = logits.argmax(1)

print("confusion", sk.confusion_matrix(labels, predicted, labels=range(C)).ravel().tolist())
for name, score in {"precision": sk.precision_score, "recall": sk.recall_score, "f1": sk.f1_score,
                    "mean_iou": sk.jaccard_score}.items():
    print(name, repr(score(labels, predicted, average="macro", zero_division=0)),
          score(labels, predicted, average=None, labels=range(5), zero_division=0).tolist())
print("top_2", repr(sk.top_k_accuracy_score(labels, logits, k=2, labels=range(C))))
print("mean_iou without label 3", repr(sk.jaccard_score(labels[labels != 3], predicted[labels != 3], average="macro")))

T = 3  # multi-label
t = np.arange(T)[None, :]
targets = (np.sin(1.3 * i + 2.1 * t) > 0.2).astype(np.int64)
outputs = (1.5 * np.sin(0.71 * (i * T + t) + 0.1 * i * i) + 1.2 * targets - 0.8).astype(np.float32)
chosen = (1 / (1 + np.exp(-outputs.astype(np.float64))) >= 0.3).astype(np.int64)
for name, score in {"precision": sk.precision_score, "recall": sk.recall_score, "f1": sk.f1_score}.items():
    print("multi-label", name, repr(score(targets, chosen, average="macro")), score(targets, chosen, average=None).tolist())


def binned(scores):
    scaled = scores * 200
    assert np.abs(scaled - np.round(scaled)).min() > 1e-4, "a score lies at the edge of a bin"
    return np.minimum(np.floor(scaled), 199)


soft = np.exp(logits.astype(np.float64))
soft /= soft.sum(1, keepdims=True)
bins, sure = binned(soft[:, :5]), soft[:, :5]
print("auc", float(np.mean([sk.roc_auc_score(labels == k, bins[:, k]) for k in range(5)])), "of scores that are not binned",
      float(np.mean([sk.roc_auc_score(labels == k, sure[:, k]) for k in range(5)])))
scores = 1 / (1 + np.exp(-outputs.astype(np.float64)))
print("multi-label auc", repr(sk.roc_auc_score(targets, binned(scores))), "of scores that are not binned",
      repr(sk.roc_auc_score(targets, scores)))

values = np.sin(0.3 * i + 1.1 * t).astype(np.float32) * (t + 1)
guesses = (values + 0.4 * np.sin(0.9 * (i * T + t))).astype(np.float32)
values, guesses = values.astype(np.float32).astype(np.float64), guesses.astype(np.float64)
print("mse", repr(sk.mean_squared_error(values, guesses)), "mae", repr(sk.mean_absolute_error(values, guesses)), "r2",
      repr(sk.r2_score(values, guesses)))
