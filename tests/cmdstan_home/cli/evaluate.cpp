#include "methods.hpp"

#include <stan/model/log_prob_grad.hpp>
#include <stan/services/diagnose/diagnose.hpp>
#include <stan/services/sample/standalone_gqs.hpp>

#include <sstream>

namespace cmdstan_home {

namespace {

using points = std::vector<std::vector<double>>;

/** Points of `params_r`: one vector, or an array of vectors. */
points read_unconstrained(const std::string& path, std::size_t width) {
  const context values = read_values(path);
  if (!values->contains_r("params_r"))
    throw file_error("file '" + path + "' holds no variable 'params_r'");
  const auto dims = values->dims_r("params_r");
  const auto flat = values->vals_r("params_r");
  const std::size_t rows = dims.size() == 2 ? dims[0] : 1;
  const std::size_t found = dims.empty() ? 1 : dims.back();
  if (dims.size() > 2 || found != width)
    throw file_error("file '" + path + "': 'params_r' has "
                     + std::to_string(found) + " values, the program has "
                     + std::to_string(width) + " unconstrained parameters");
  // Arrays arrive with the first index changing fastest.
  points out(rows, std::vector<double>(width));
  for (std::size_t i = 0; i < rows; ++i)
    for (std::size_t j = 0; j < width; ++j)
      out[i][j] = flat[j * rows + i];
  return out;
}

/** Points on the scale of the program, from CSV draws or one set of values. */
points read_constrained(const std::string& path,
                        const stan::model::model_base& model) {
  std::ostringstream messages;
  points out;
  if (path.size() > 4 && path.substr(path.size() - 4) == ".csv") {
    const Eigen::MatrixXd draws = read_draws(path, model);
    for (Eigen::Index i = 0; i < draws.rows(); ++i) {
      const Eigen::VectorXd draw = draws.row(i);
      Eigen::VectorXd free;
      model.unconstrain_array(draw, free, &messages);
      out.emplace_back(free.data(), free.data() + free.size());
    }
  } else {
    Eigen::VectorXd free;
    model.transform_inits(*read_values(path), free, &messages);
    out.emplace_back(free.data(), free.data() + free.size());
  }
  return out;
}

}  // namespace

int run_generate_quantities(const job& task) {
  const auto& path = task.method()["fitted_params"].as_text();
  if (path.empty())
    throw usage_error(
        "method generate_quantities needs the argument 'fitted_params=<file>'");
  if (path == task.arguments["output.file"].as_text())
    throw usage_error("'" + path
                      + "' is both fitted_params and output file; choose "
                        "another output file");
  const Eigen::MatrixXd draws = read_draws(path, task.model);
  csv_writer output = task.output();
  return stan::services::standalone_generate(
      task.model, draws, task.seed(), task.interrupt, task.logger, output);
}

int run_log_prob(const job& task) {
  const argument& method = task.method();
  const auto& constrained = method["constrained_params"].as_text();
  const auto& unconstrained = method["unconstrained_params"].as_text();
  if (constrained.empty() == unconstrained.empty())
    throw usage_error(
        "method log_prob needs one of the arguments 'constrained_params=<file>'"
        " and 'unconstrained_params=<file>'");
  points at = constrained.empty()
                  ? read_unconstrained(unconstrained, task.model.num_params_r())
                  : read_constrained(constrained, task.model);

  csv_writer output = task.output();
  std::vector<std::string> names;
  task.model.unconstrained_param_names(names, false, false);
  for (auto& name : names)
    name = "g_" + name;
  names.insert(names.begin(), "lp__");
  output(names);

  const bool jacobian = method["jacobian"].as_flag();
  for (auto& point : at) {
    std::vector<int> none;
    std::vector<double> row;
    std::ostringstream messages;
    // As in CmdStan, constants that `~` drops stay dropped.
    const double lp
        = jacobian ? stan::model::log_prob_grad<true, true>(
              task.model, point, none, row, &messages)
                   : stan::model::log_prob_grad<true, false>(
                       task.model, point, none, row, &messages);
    if (!messages.str().empty())
      task.logger.info(messages.str());
    row.insert(row.begin(), lp);
    output(row);
  }
  return stan::services::error_codes::OK;
}

int run_diagnose(const job& task) {
  const argument& test = task.method()["test.gradient"];
  const auto inits = task.inits(1);
  stan::callbacks::writer no_init;
  csv_writer output = task.output();
  const int wrong = stan::services::diagnose::diagnose(
      task.model, *inits[0], task.seed(), task.id(), task.init_radius(),
      test["epsilon"].as_real(), test["error"].as_real(), task.interrupt,
      task.logger, no_init, output);
  if (wrong == 0)
    return stan::services::error_codes::OK;
  task.logger.error("Error: " + std::to_string(wrong)
                    + " gradients differ from finite differences");
  return stan::services::error_codes::SOFTWARE;
}

}  // namespace cmdstan_home
