package nova.flink.plugin;

import java.time.Duration;
import java.util.Collection;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.flink.api.common.JobID;
import org.apache.flink.client.deployment.ClusterClientFactory;
import org.apache.flink.client.deployment.ClusterDescriptor;
import org.apache.flink.client.deployment.DefaultClusterClientServiceLoader;
import org.apache.flink.client.deployment.application.executors.EmbeddedExecutor;
import org.apache.flink.client.program.ClusterClient;
import org.apache.flink.client.program.rest.RestClusterClient;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.DeploymentOptions;
import org.apache.flink.configuration.RestOptions;
import org.apache.flink.runtime.jobgraph.JobVertexID;
import org.apache.flink.runtime.jobmaster.JobResult;
import org.apache.flink.runtime.rest.messages.ClusterConfigurationInfoHeaders;
import org.apache.flink.runtime.rest.messages.EmptyMessageParameters;
import org.apache.flink.runtime.rest.messages.EmptyRequestBody;
import org.apache.flink.runtime.rest.messages.JobVertexDetailsHeaders;
import org.apache.flink.runtime.rest.messages.JobVertexMessageParameters;
import org.apache.flink.runtime.rest.messages.MessageHeaders;
import org.apache.flink.runtime.rest.messages.MessageParameters;
import org.apache.flink.runtime.rest.messages.ResponseBody;
import org.apache.flink.runtime.rest.messages.job.JobDetailsInfo;
import org.apache.flink.runtime.rest.messages.job.SubtaskExecutionAttemptDetailsInfo;
import org.apache.flink.runtime.rest.messages.taskmanager.TaskManagerInfo;
import org.apache.flink.runtime.rest.messages.taskmanager.TaskManagersHeaders;

/** The cluster that jobs are sent to, as its REST interface tells of it. */
final class Cluster implements AutoCloseable {
  private static final Duration PATIENCE = Duration.ofSeconds(10);

  private final RestClusterClient<?> client;
  final String url;

  private Cluster(RestClusterClient<?> client) {
    this.client = client;
    url = client.getWebInterfaceURL();
  }

  /** The cluster of a deployment target; null where that has no REST interface. */
  static Cluster of(Configuration configuration) {
    Configuration hurried = new Configuration(configuration);
    // By default Flink's client tries for a minute before it says that nothing answers.
    hurried.set(RestOptions.RETRY_MAX_ATTEMPTS, 1);
    hurried.set(RestOptions.CONNECTION_TIMEOUT, PATIENCE);
    try {
      if (EmbeddedExecutor.NAME.equals(configuration.get(DeploymentOptions.TARGET))) {
        return new Cluster(new RestClusterClient<>(hurried, "application"));
      }
      ClusterClient<?> client =
          client(new DefaultClusterClientServiceLoader().getClusterClientFactory(hurried), hurried);
      return client instanceof RestClusterClient
          ? new Cluster((RestClusterClient<?>) client)
          : null;
    } catch (IllegalStateException error) {
      return null; // e.g. a cluster within the client
    } catch (Exception error) {
      throw new Refusal(
          "Flink's cluster cannot be asked: " + Documents.line("" + error.getMessage()));
    }
  }

  private static <T> ClusterClient<T> client(
      ClusterClientFactory<T> factory, Configuration configuration) throws Exception {
    try (ClusterDescriptor<T> descriptor = factory.createClusterDescriptor(configuration)) {
      return descriptor.retrieve(factory.getClusterId(configuration)).getClusterClient();
    }
  }

  /** What it was started with. */
  Configuration configuration() {
    Configuration found = new Configuration();
    answer(ClusterConfigurationInfoHeaders.getInstance(), EmptyMessageParameters.getInstance())
        .forEach(one -> found.setString(one.getKey(), one.getValue()));
    return found;
  }

  Collection<TaskManagerInfo> taskManagers() {
    return answer(TaskManagersHeaders.getInstance(), EmptyMessageParameters.getInstance())
        .getTaskManagerInfos();
  }

  /** Names of the external resources of a TaskManager. */
  static Set<String> offered(TaskManagerInfo manager) {
    return manager.getTotalResource().getExtendedResources().keySet();
  }

  JobDetailsInfo job(JobID job) {
    return await(client.getJobDetails(job));
  }

  List<SubtaskExecutionAttemptDetailsInfo> subtasks(JobID job, JobVertexID vertex) {
    JobVertexMessageParameters of = new JobVertexMessageParameters();
    of.jobPathParameter.resolve(job);
    of.jobVertexIdPathParameter.resolve(vertex);
    return answer(JobVertexDetailsHeaders.getInstance(), of).getSubtasks();
  }

  /** Why a job has failed, in a line. */
  String failure(JobID job) {
    JobResult result = await(client.requestJobResult(job));
    Throwable cause = result.getSerializedThrowable().orElse(null);
    while (cause != null && cause.getCause() != null) {
      cause = cause.getCause();
    }
    return cause == null ? "Flink gives no reason" : Documents.line("" + cause.getMessage());
  }

  private <P extends ResponseBody, U extends MessageParameters> P answer(
      MessageHeaders<EmptyRequestBody, P, U> headers, U parameters) {
    return await(client.sendRequest(headers, parameters, EmptyRequestBody.getInstance()));
  }

  private <T> T await(CompletableFuture<T> answer) {
    try {
      return answer.get(PATIENCE.toMillis(), TimeUnit.MILLISECONDS);
    } catch (ExecutionException | TimeoutException error) {
      Throwable cause = error.getCause() == null ? error : error.getCause();
      throw new Refusal(
          url + ": no answer from Flink's JobManager (" + Documents.line("" + cause.getMessage())
              + "); is the cluster up?");
    } catch (InterruptedException error) {
      Thread.currentThread().interrupt();
      throw new Refusal(url + ": interrupted while asking Flink's JobManager");
    }
  }

  @Override
  public void close() {
    client.close();
  }
}
