// Ctrl-C, SIGTERM, SIGUSR1 (Slurm's warning before the end of a job) and a hangup ask a run to stop and save.
// Schedulers and wrappers often send two: nothing that comes within a second of the first one counts as a further wish.
#pragma once

namespace bantam::cli {

/// Handlers of SIGINT, SIGTERM, SIGUSR1 and SIGHUP for a scope. A signal that is ignored when the scope begins (as
/// nohup does with SIGHUP) stays ignored. One at a time in a process; the members are called by one thread.
///
/// | the run is | the first signal | later ones, within a second | later ones |
/// |---|---|---|---|
/// | starting | sets `requested`; a start that does not end by itself within a second is ended with `stop_exit_code`:
/// there is nothing to lose | | | | training, or saving | sets `requested` | are counted only | end the process, and
/// say what is lost | | saved | changes nothing | are counted only | end the process with `stop_exit_code` |
class StopOnSignal {
 public:
  /// Installs the handlers; the run is starting. They say on standard error what they do, unless they are quiet: of a
  /// process beside one that does.
  explicit StopOnSignal(bool quiet = false);
  /// Puts the former handlers back; but after a signal the handlers stay, so that its twin does not change the exit
  /// code of a process that is about to return.
  ~StopOnSignal();
  StopOnSignal(const StopOnSignal&) = delete;
  StopOnSignal& operator=(const StopOnSignal&) = delete;

  /// Another run of this process is starting, after one that was saved.
  void begin_start();
  /// From here on there is something to lose.
  void begin_training();
  /// All that was trained is on the disk.
  void note_saved();
  /// Whether a signal has asked the run to stop.
  bool requested() const;
  /// The signal that asked first (SIGINT, SIGTERM, SIGUSR1, SIGHUP), or 0.
  int signal() const;
};

/// 130 for SIGINT, 75 for the others: the exit code of a run that was stopped by `signal` and saved.
int stop_exit_code(int signal);

}  // namespace bantam::cli
