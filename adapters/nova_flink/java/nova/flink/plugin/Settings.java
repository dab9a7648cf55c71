package nova.flink.plugin;

import static org.apache.flink.configuration.ConfigOptions.key;

import java.time.Duration;
import org.apache.flink.configuration.ConfigOption;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.DeploymentOptions;
import org.apache.flink.configuration.MemorySize;

/** What Flink's configuration says to Nova. */
final class Settings {
  static final String NAME = "nova";

  static final ConfigOption<String> TARGET =
      key("nova.target")
          .stringType()
          .defaultValue("remote")
          .withDescription("The deployment target behind Nova: what execution.target was.");
  static final ConfigOption<String> PLAN =
      key("nova.plan")
          .stringType()
          .noDefaultValue()
          .withDescription("File of a plan, as JSON; 'none' runs jobs unpinned.");
  static final ConfigOption<String> SERVICE =
      key("nova.service")
          .stringType()
          .noDefaultValue()
          .withDescription("URL of `nova serve`, which is asked where there is no plan.");
  static final ConfigOption<String> TOKEN_FILE =
      key("nova.token-file")
          .stringType()
          .noDefaultValue()
          .withDescription("File with the service's token.");
  static final ConfigOption<String> NODES =
      key("nova.nodes")
          .stringType()
          .noDefaultValue()
          .withDescription(
              "Where jobs may run: file of a problem, or a problem of the service, by id or name;"
                  + " only its nodes and latencies are used.");
  static final ConfigOption<String> MAPPING =
      key("nova.mapping")
          .stringType()
          .noDefaultValue()
          .withDescription("YAML file: nodes and rates of sources, nodes of sinks, selectivities.");
  static final ConfigOption<String> STRATEGY =
      key("nova.strategy")
          .stringType()
          .defaultValue("nova")
          .withDescription("What the service places with.");
  static final ConfigOption<String> PARAMETERS =
      key("nova.parameters")
          .stringType()
          .defaultValue("")
          .withDescription("Of the strategy: NAME=VALUE,...");
  static final ConfigOption<String> ON_ERROR =
      key("nova.on-error")
          .stringType()
          .defaultValue("fail")
          .withDescription(
              "What happens without a placement: fail, or unpinned (run where Flink puts it).");
  static final ConfigOption<MemorySize> MANAGED_MEMORY =
      key("nova.managed-memory")
          .memoryType()
          .noDefaultValue()
          .withDescription(
              "Managed memory of a slot. Without: 64 mb where RocksDB, Python or a sort needs it.");
  static final ConfigOption<String> PROBLEM_FILE =
      key("nova.problem-file")
          .stringType()
          .noDefaultValue()
          .withDescription("Where the problem that a job is gets written, for `nova plan`.");
  static final ConfigOption<Boolean> OPERATOR_IDS =
      key("nova.operator-ids")
          .booleanType()
          .defaultValue(true)
          .withDescription(
              "Give operators without a uid a stable one, so that a job can be moved with its"
                  + " state. Savepoints made without them do not fit.");
  static final ConfigOption<Boolean> CHECK =
      key("nova.check")
          .booleanType()
          .defaultValue(true)
          .withDescription(
              "Ask the cluster for its scheduler and its TaskManagers before a job is sent.");
  static final ConfigOption<Boolean> VERIFY =
      key("nova.verify")
          .booleanType()
          .defaultValue(true)
          .withDescription("After a job was submitted, compare where it runs with its plan.");
  static final ConfigOption<Duration> VERIFY_TIMEOUT =
      key("nova.verify-timeout")
          .durationType()
          .defaultValue(Duration.ofSeconds(60))
          .withDescription("Until all of a job must run where its plan has it.");

  private Settings() {}

  /** The configuration of what really runs jobs. */
  static Configuration behind(Configuration configuration) {
    Configuration result = new Configuration(configuration);
    String target = configuration.get(TARGET);
    if (NAME.equals(target)) {
      throw new Refusal("nova.target: nova: expected what runs jobs, e.g. remote");
    }
    result.set(DeploymentOptions.TARGET, target);
    return result;
  }

  static boolean chosen(Configuration configuration) {
    return NAME.equalsIgnoreCase(configuration.get(DeploymentOptions.TARGET));
  }
}
