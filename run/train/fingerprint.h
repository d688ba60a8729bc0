// Fingerprint: what of a configuration and its data a run's state belongs to, and what of it has changed.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "bantam/data/delivery/data_config.h"
#include "bantam/run/config/run_config.h"

namespace bantam::run {

/// Values of a resolved configuration by path, and facts of the data ("data (training samples)"): all that decides what
/// an update computes. How long, where, in how much memory, by which plan and how it is logged is left out: a resumed
/// run may change these.
using Fingerprint = std::map<std::string, std::string>;

/// The lines of the configuration alone, which is decided.
Fingerprint fingerprint_of(const RunConfig& config);
/// Adds facts of its data.
void add_data(Fingerprint& fingerprint, const OpenedData& data);

/// A line for each entry, "train.accumulate: 2".
std::string to_text(const Fingerprint& fingerprint);

/// A line for each difference, "train.optimizer.sgd.learning_rate: was 0.1, is 0.01", in the order of the paths. Facts
/// of data are compared where both have them.
std::vector<std::string> differences(const Fingerprint& was, const Fingerprint& is);

}  // namespace bantam::run
