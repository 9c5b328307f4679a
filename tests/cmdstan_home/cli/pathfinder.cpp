#include "methods.hpp"

#include <stan/services/pathfinder/multi.hpp>
#include <stan/services/pathfinder/single.hpp>

namespace cmdstan_home {

int run_pathfinder(const job& task) {
  namespace services = stan::services::pathfinder;
  if (task.model.num_params_r() == 0)
    throw usage_error("method pathfinder needs a program with parameters");
  const argument& method = task.method();
  const int paths = method["num_paths"].as_integer();
  const int history = method["history_size"].as_integer();
  const double alpha = method["init_alpha"].as_real();
  const double obj = method["tol_obj"].as_real();
  const double rel_obj = method["tol_rel_obj"].as_real();
  const double grad = method["tol_grad"].as_real();
  const double rel_grad = method["tol_rel_grad"].as_real();
  const double param = method["tol_param"].as_real();
  const int iterations = method["max_lbfgs_iters"].as_integer();
  const int elbo_draws = method["num_elbo_draws"].as_integer();
  const int draws = method["num_draws"].as_integer();
  const bool lp = method["calculate_lp"].as_flag();
  const bool save_iterations = false;

  const auto inits = task.inits(paths);
  csv_writer output = task.output();
  if (paths == 1) {
    stan::callbacks::writer no_init;
    stan::callbacks::structured_writer no_diagnostic;
    return services::pathfinder_lbfgs_single(
        task.model, *inits[0], task.seed(), task.id(), task.init_radius(),
        history, alpha, obj, rel_obj, grad, rel_grad, param, iterations,
        elbo_draws, draws, save_iterations, task.refresh(), task.interrupt,
        task.logger, no_init, output, no_diagnostic, lp);
  }
  std::vector<stan::callbacks::writer> no_inits(paths);
  std::vector<stan::callbacks::structured_writer> no_diagnostics(paths);
  stan::callbacks::structured_writer no_diagnostic;
  std::vector<csv_writer> no_outputs(paths);
  return services::pathfinder_lbfgs_multi(
      task.model, inits, task.seed(), task.id(), task.init_radius(), history,
      alpha, obj, rel_obj, grad, rel_grad, param, iterations, elbo_draws, draws,
      method["num_psis_draws"].as_integer(), paths, save_iterations,
      task.refresh(), task.interrupt, task.logger, no_inits, no_outputs,
      no_diagnostics, output, no_diagnostic, lp,
      method["psis_resample"].as_flag());
}

}  // namespace cmdstan_home
