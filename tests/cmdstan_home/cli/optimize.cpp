#include "methods.hpp"

#include <stan/services/optimize/bfgs.hpp>
#include <stan/services/optimize/laplace_sample.hpp>
#include <stan/services/optimize/lbfgs.hpp>
#include <stan/services/optimize/newton.hpp>

#include <sstream>

namespace cmdstan_home {

namespace {

using model_base = stan::model::model_base;

template <bool jacobian>
int optimize(const job& task) {
  namespace services = stan::services::optimize;
  const argument& method = task.method();
  const argument& algorithm = method["algorithm"].chosen();
  const int iterations = method["iter"].as_integer();
  const bool save = method["save_iterations"].as_flag();
  const auto inits = task.inits(1);
  stan::callbacks::writer no_inits;
  csv_writer output = task.output();

  if (algorithm.name() == "newton")
    return services::newton<model_base, jacobian>(
        task.model, *inits[0], task.seed(), task.id(), task.init_radius(),
        iterations, save, task.interrupt, task.logger, no_inits, output);

  const double alpha = algorithm["init_alpha"].as_real();
  const double obj = algorithm["tol_obj"].as_real();
  const double rel_obj = algorithm["tol_rel_obj"].as_real();
  const double grad = algorithm["tol_grad"].as_real();
  const double rel_grad = algorithm["tol_rel_grad"].as_real();
  const double param = algorithm["tol_param"].as_real();
  if (algorithm.name() == "bfgs")
    return services::bfgs<model_base, jacobian>(
        task.model, *inits[0], task.seed(), task.id(), task.init_radius(),
        alpha, obj, rel_obj, grad, rel_grad, param, iterations, save,
        task.refresh(), task.interrupt, task.logger, no_inits, output);
  return services::lbfgs<model_base, jacobian>(
      task.model, *inits[0], task.seed(), task.id(), task.init_radius(),
      algorithm["history_size"].as_integer(), alpha, obj, rel_obj, grad,
      rel_grad, param, iterations, save, task.refresh(), task.interrupt,
      task.logger, no_inits, output);
}

/** The mode without bounds: from the last draw of a CSV file, or from JSON. */
Eigen::VectorXd read_mode(const std::string& path, const model_base& model) {
  if (path.empty())
    throw usage_error("method laplace needs the argument 'mode=<file>'");
  Eigen::VectorXd mode;
  std::ostringstream messages;
  if (path.size() > 4 && path.substr(path.size() - 4) == ".csv") {
    const Eigen::MatrixXd draws = read_draws(path, model);
    const Eigen::VectorXd last = draws.row(draws.rows() - 1);
    model.unconstrain_array(last, mode, &messages);
  } else {
    model.transform_inits(*read_values(path), mode, &messages);
  }
  return mode;
}

}  // namespace

int run_optimize(const job& task) {
  return task.method()["jacobian"].as_flag() ? optimize<true>(task)
                                             : optimize<false>(task);
}

int run_laplace(const job& task) {
  const argument& laplace = task.method();
  const Eigen::VectorXd mode
      = read_mode(laplace["mode"].as_text(), task.model);
  const int draws = laplace["draws"].as_integer();
  const bool lp = laplace["calculate_lp"].as_flag();
  csv_writer output = task.output();
  stan::callbacks::structured_writer no_hessian;
  if (laplace["jacobian"].as_flag())
    return stan::services::laplace_sample<true>(
        task.model, mode, draws, lp, task.seed(), task.refresh(),
        task.interrupt, task.logger, output, no_hessian);
  return stan::services::laplace_sample<false>(
      task.model, mode, draws, lp, task.seed(), task.refresh(), task.interrupt,
      task.logger, output, no_hessian);
}

}  // namespace cmdstan_home
