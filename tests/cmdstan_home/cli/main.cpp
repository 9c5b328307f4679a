// A command line over stan::services that speaks what cmdstanpy speaks.
// Each model is compiled by itself and linked with this program.

#include "methods.hpp"

#include <stan/version.hpp>

#include <cstdlib>
#include <iostream>
#include <mutex>
#include <random>

// Both come from the code that stanc writes for a model.
stan::model::model_base& new_model(stan::io::var_context& data,
                                   unsigned int seed, std::ostream* messages);
stan::math::profile_map& get_stan_profile_data();

namespace cmdstan_home {

namespace {

using stan::services::error_codes;

/** Whole lines to the console, also when several chains write at once. */
class console final : public stan::callbacks::logger {
 public:
  void debug(const std::string& line) override { write(std::cout, line); }
  void info(const std::string& line) override { write(std::cout, line); }
  void warn(const std::string& line) override { write(std::cout, line); }
  void error(const std::string& line) override { write(std::cerr, line); }
  void fatal(const std::string& line) override { write(std::cerr, line); }
  void debug(const std::stringstream& line) override { debug(line.str()); }
  void info(const std::stringstream& line) override { info(line.str()); }
  void warn(const std::stringstream& line) override { warn(line.str()); }
  void error(const std::stringstream& line) override { error(line.str()); }
  void fatal(const std::stringstream& line) override { fatal(line.str()); }

 private:
  void write(std::ostream& out, const std::string& line) {
    const std::lock_guard<std::mutex> guard(mutex_);
    out << line << std::endl;
  }
  std::mutex mutex_;
};

bool threads_compiled() {
#ifdef STAN_THREADS
  return true;
#else
  return false;
#endif
}

/** What `model info` prints; cmdstanpy reads it. */
void print_info() {
#ifdef STAN_NO_RANGE_CHECKS
  const bool checked = false;
#else
  const bool checked = true;
#endif
  std::cout << "stan_version_major = " << stan::MAJOR_VERSION << "\n"
            << "stan_version_minor = " << stan::MINOR_VERSION << "\n"
            << "stan_version_patch = " << stan::PATCH_VERSION << "\n"
            << "STAN_THREADS=" << (threads_compiled() ? "true" : "false")
            << "\nSTAN_MPI=false\nSTAN_OPENCL=false\n"
            << "STAN_NO_RANGE_CHECKS=" << (checked ? "false" : "true")
            << "\nSTAN_CPP_OPTIMS=false\n";
}

/** Fill in what depends on the machine or on chance. */
void settle(argument& arguments) {
  argument& seed = arguments["random.seed"];
  if (!seed.given())
    seed.set(std::to_string(std::random_device{}()));
  argument& threads = arguments["num_threads"];
  const char* wanted = std::getenv("STAN_NUM_THREADS");
  if (!threads.given() && threads_compiled() && wanted != nullptr)
    threads.set(wanted);
  const auto n = threads.as_integer();
  if (n == 0 || (n != 1 && !threads_compiled()))
    throw usage_error(
        "argument 'num_threads=" + threads.as_text()
        + (n == 0 ? "' must be -1 or at least 1"
                  : "' needs a model compiled with STAN_THREADS=true"));
}

int run(const job& task) {
  const auto& method = task.method().name();
  if (method == "sample")
    return run_sample(task);
  if (method == "optimize")
    return run_optimize(task);
  if (method == "laplace")
    return run_laplace(task);
  if (method == "variational")
    return run_variational(task);
  if (method == "pathfinder")
    return run_pathfinder(task);
  if (method == "generate_quantities")
    return run_generate_quantities(task);
  if (method == "log_prob")
    return run_log_prob(task);
  return run_diagnose(task);
}

int start(const std::vector<std::string>& words, console& logger) {
  argument arguments = command_line();
  if (words.size() == 1 && words[0] == "info") {
    print_info();
    return error_codes::OK;
  }
  if (words.size() == 1 && words[0] == "help") {
    for (const auto& line : describe(arguments))
      std::cout << line << "\n";
    return error_codes::OK;
  }
  if (words.empty())
    throw usage_error("no arguments; 'help' lists them");
  parse(arguments, words);
  if (!arguments["method"].given())
    throw usage_error("the argument 'method' is missing, such as method=sample");
  settle(arguments);
  for (const auto& line : describe(arguments))
    logger.info(line);
  logger.info("");

  stan::math::init_threadpool_tbb(arguments["num_threads"].as_integer());
  const auto data = read_values(arguments["data.file"].as_text());
  std::ostringstream messages;
  stan::model::model_base* model = nullptr;
  const auto flush = [&] {
    if (!messages.str().empty())
      logger.info(messages.str());
  };
  try {
    // stanc's signature is not const, though the data are only read.
    model = &new_model(const_cast<stan::io::var_context&>(*data),
                       arguments["random.seed"].as_integer(), &messages);
  } catch (...) {
    flush();
    throw;
  }
  flush();
  if (arguments["output.save_cmdstan_config"].as_flag())
    write_config(arguments, *model);

  stan::callbacks::interrupt interrupt;
  const int code = run({arguments, *model, logger, interrupt});
  write_profile(arguments["output.profile_file"].as_text(),
                get_stan_profile_data());
  delete model;
  // cmdstanpy tells a failed generate_quantities by such a line alone.
  if (code != stan::services::error_codes::OK)
    logger.error("Error: method " + arguments["method"].as_text()
                 + " failed with code " + std::to_string(code));
  return code;
}

/** The console line of an error: cmdstanpy looks for Error or Exception. */
std::string error_line(const std::string& what) {
  const bool marked = what.rfind("Exception", 0) == 0
                      || what.rfind("Error", 0) == 0;
  return marked ? what : "Error: " + what;
}

/** Is `init` a number, hence a radius and not a file? */
bool as_radius(const std::string& init, double& radius) {
  char* end = nullptr;
  radius = std::strtod(init.c_str(), &end);
  if (init.empty() || *end != '\0')
    return false;
  if (!(radius >= 0) || std::isinf(radius))
    throw usage_error("argument 'init=" + init
                      + "' must be a file or a number, at least 0");
  return true;
}

}  // namespace

double job::init_radius() const {
  double radius = 0;
  return as_radius(arguments["init"].as_text(), radius) ? radius : 2;
}

std::vector<context> job::inits(int count) const {
  double radius = 0;
  const auto& init = arguments["init"].as_text();
  if (as_radius(init, radius))
    return std::vector<context>(count, read_values(""));
  return read_values(init, count, id());
}

csv_writer job::output() const {
  return open_csv(arguments["output.file"].as_text(), arguments,
                  preamble(arguments, model));
}

}  // namespace cmdstan_home

int main(int argc, char** argv) {
  using namespace cmdstan_home;
  console logger;
  try {
    return start({argv + 1, argv + argc}, logger);
  } catch (const usage_error& e) {
    logger.error(error_line(e.what()));
    return stan::services::error_codes::USAGE;
  } catch (const file_error& e) {
    logger.error(error_line(e.what()));
    return stan::services::error_codes::NOINPUT;
  } catch (const std::exception& e) {
    logger.error(error_line(e.what()));
    return stan::services::error_codes::SOFTWARE;
  }
}
