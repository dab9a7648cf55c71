package nova.flink.plugin;

import org.apache.flink.configuration.Configuration;
import org.apache.flink.core.execution.DefaultExecutorServiceLoader;
import org.apache.flink.core.execution.PipelineExecutor;
import org.apache.flink.core.execution.PipelineExecutorFactory;

/** Flink finds it for {@code execution.target: nova}. */
public final class NovaExecutorFactory implements PipelineExecutorFactory {
  @Override
  public String getName() {
    return Settings.NAME;
  }

  @Override
  public boolean isCompatibleWith(Configuration configuration) {
    return Settings.chosen(configuration);
  }

  @Override
  public PipelineExecutor getExecutor(Configuration configuration) {
    return (pipeline, given, loader) -> {
      Configuration behind = Settings.behind(given);
      PipelineExecutor real =
          new DefaultExecutorServiceLoader().getExecutorFactory(behind).getExecutor(behind);
      return Placing.submit(real, pipeline, behind, loader);
    };
  }
}
