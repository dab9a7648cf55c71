package nova.flink.plugin;

import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.flink.api.common.JobID;
import org.apache.flink.api.common.JobStatus;
import org.apache.flink.client.deployment.application.executors.EmbeddedExecutor;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.DeploymentOptions;
import org.apache.flink.runtime.execution.ExecutionState;
import org.apache.flink.runtime.jobgraph.JobType;
import org.apache.flink.runtime.rest.messages.JobPlanInfo;
import org.apache.flink.runtime.rest.messages.job.JobDetailsInfo;
import org.apache.flink.runtime.rest.messages.job.SubtaskExecutionAttemptDetailsInfo;
import org.apache.flink.runtime.rest.messages.taskmanager.TaskManagerInfo;

/** Where the subtasks of a submitted job are at a moment, and where they were pinned. */
final class Verification {
  private static final Duration BETWEEN = Duration.ofMillis(300);
  private static final Set<ExecutionState> THERE =
      Set.of(ExecutionState.INITIALIZING, ExecutionState.RUNNING, ExecutionState.FINISHED);

  private final JobDetailsInfo job;
  private int right;
  private final List<String> elsewhere = new ArrayList<>();
  private final List<String> starting = new ArrayList<>();

  /** What waits for other subtasks to end, as it does in batch jobs. */
  private final List<String> later = new ArrayList<>();

  private Verification(Cluster cluster, JobID id) {
    job = cluster.job(id);
    Map<String, Set<String>> offered = new HashMap<>();
    for (TaskManagerInfo one : cluster.taskManagers()) {
      offered.put(one.getResourceId().toString(), Cluster.offered(one));
    }
    Map<String, Set<String>> pinned = new HashMap<>();
    for (JobPlanInfo.Plan.Node one : job.getPlan().getNodes()) {
      pinned.put(one.getId(), Names.marked(one.getDescription()));
    }
    for (JobDetailsInfo.JobVertexDetailsInfo vertex : job.getJobVertexInfos()) {
      Set<String> nodes = pinned.getOrDefault(vertex.getJobVertexID().toString(), Set.of());
      List<SubtaskExecutionAttemptDetailsInfo> subtasks =
          new ArrayList<>(cluster.subtasks(id, vertex.getJobVertexID()));
      if (subtasks.isEmpty()) {
        // The batch scheduler sets a vertex's parallelism when what it reads has been written.
        later.add("'" + vertex.getName() + "' (parallelism not set yet)");
      }
      for (SubtaskExecutionAttemptDetailsInfo one : subtasks) {
        look(vertex.getName(), one, nodes, offered.get(one.getTaskmanagerId()));
      }
    }
  }

  private void look(
      String name,
      SubtaskExecutionAttemptDetailsInfo subtask,
      Set<String> nodes,
      Set<String> offered) {
    ExecutionState state = subtask.getStatus();
    if (state == ExecutionState.CREATED) {
      later.add("'" + name + "' (" + state + ")");
    } else if (offered == null) {
      starting.add("'" + name + "' (" + state + ")");
    } else if (nodes.isEmpty()
        || !nodes.stream().allMatch(node -> offered.contains(Names.resource(node)))) {
      elsewhere.add(
          "'" + name + "' is on " + subtask.getTaskmanagerId() + " and belongs on "
              + (nodes.isEmpty() ? "no node" : String.join(" and ", nodes)));
    } else if (THERE.contains(state)) {
      right++;
    } else {
      starting.add("'" + name + "' (" + state + ")");
    }
  }

  /**
   * Wait until a job runs.
   *
   * <p>An application that ends takes its cluster with it: it ends only for a job that has failed
   * or runs elsewhere, and not because TaskManagers come late.
   *
   * @throws Refusal in a line, if some of it runs elsewhere or not at all
   */
  static void verify(JobID id, Configuration configuration) {
    Duration limit = configuration.get(Settings.VERIFY_TIMEOUT);
    Instant end = Instant.now().plus(limit);
    boolean attached = configuration.get(DeploymentOptions.ATTACHED);
    boolean application =
        EmbeddedExecutor.NAME.equals(configuration.get(DeploymentOptions.TARGET));
    try (Cluster cluster = Cluster.of(configuration)) {
      if (cluster == null) {
        Placing.say("job " + id + ": its cluster has no REST interface to ask where it runs");
        return;
      }
      while (true) {
        // Flink may show a job for seconds as it was at the first look.
        Thread.sleep(BETWEEN.toMillis());
        Verification seen;
        try {
          seen = new Verification(cluster, id);
        } catch (Refusal silence) {
          warn("job " + id + ": " + silence.getMessage(), application);
          return;
        }
        seen.refuse(cluster);
        boolean late = Instant.now().isAfter(end);
        if (seen.settled(attached) || (late && seen.partly())) {
          Placing.tell(seen.summary());
          return;
        }
        if (late) {
          warn(seen.missing(limit), application);
          return;
        }
      }
    } catch (InterruptedException error) {
      Thread.currentThread().interrupt();
      throw new Refusal("job " + id + ": interrupted while waiting for it to run");
    }
  }

  private static void warn(String message, boolean application) {
    if (!application) {
      throw new Refusal(message);
    }
    Placing.say(message);
  }

  /** Refuse what cannot become right any more. */
  private void refuse(Cluster cluster) {
    JobStatus state = job.getJobStatus();
    if (!elsewhere.isEmpty()) {
      throw refusal(
          elsewhere.size() + " of " + parts() + " subtasks are not where the plan has them, e.g. "
              + elsewhere.get(0) + "; the job is " + state);
    }
    if (state == JobStatus.FAILED) {
      throw refusal("is FAILED: " + cluster.failure(job.getJobId()));
    }
    if (state == JobStatus.CANCELED) {
      throw refusal("is CANCELED");
    }
  }

  private Refusal refusal(String what) {
    return new Refusal(name() + what);
  }

  private String name() {
    return "job " + job.getJobId() + ": ";
  }

  private int parts() {
    return right + elsewhere.size() + starting.size() + later.size();
  }

  private boolean complete() {
    return right > 0 && right == parts() && job.getPendingOperators() <= 0;
  }

  /** Some of a batch job runs, and the rest waits for it. */
  private boolean partly() {
    return right > 0 && job.getJobType() == JobType.BATCH;
  }

  /**
   * Whether there is nothing more to wait for.
   *
   * @param attached whether whoever submits a batch job waits for its end anyway
   */
  private boolean settled(boolean attached) {
    return complete() || (!attached && partly() && starting.isEmpty());
  }

  private String missing(Duration limit) {
    List<String> all = new ArrayList<>(starting);
    all.addAll(later);
    return name() + "after " + limit.toSeconds() + " s " + all.size() + " of " + parts()
        + " subtasks do not run" + (all.isEmpty() ? "" : ", e.g. " + all.get(0));
  }

  private String summary() {
    return name()
        + (complete()
            ? "all " + right + " subtasks run where the plan has them"
            : right + " subtasks run where the plan has them, and others have not begun:"
                + " `nova cluster verify` compares them later");
  }
}
