package org.apache.flink.streaming.runtime.tasks;

import java.io.IOException;

/**
 * Sends what a task has in its buffers. Flink does so after a time or with every tuple; only classes
 * of this package can choose the moment.
 */
public final class TaskOutputs {
  private TaskOutputs() {}

  public static void flush(StreamTask<?, ?> task) throws IOException {
    task.operatorChain.flushOutputs();
  }
}
