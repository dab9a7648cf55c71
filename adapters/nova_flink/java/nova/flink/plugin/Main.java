package nova.flink.plugin;

import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.util.Arrays;
import java.util.stream.Stream;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.core.execution.PipelineExecutor;
import org.apache.flink.core.execution.PipelineExecutorFactory;
import org.apache.flink.core.execution.PipelineExecutorServiceLoader;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironmentFactory;

/**
 * Runs a job's main class where Flink fixes the execution target, as in application mode: its first
 * argument is that class, the others are the job's.
 */
public final class Main extends StreamExecutionEnvironment {
  private Main() {}

  public static void main(String[] arguments) throws Throwable {
    if (arguments.length == 0) {
      throw new Refusal(Main.class.getName() + ": expected the job's main class and its arguments");
    }
    StreamExecutionEnvironmentFactory before = current();
    ClassLoader loader = Thread.currentThread().getContextClassLoader();
    initializeContextEnvironment(given -> placing(before, given, loader));
    try {
      Class.forName(arguments[0], true, loader)
          .getMethod("main", String[].class)
          .invoke(null, (Object) Arrays.copyOfRange(arguments, 1, arguments.length));
    } catch (ClassNotFoundException | NoSuchMethodException error) {
      throw new Refusal(arguments[0] + ": there is no such main class in the job's jars");
    } catch (InvocationTargetException error) {
      throw error.getCause();
    } finally {
      initializeContextEnvironment(before);
    }
  }

  private static StreamExecutionEnvironmentFactory current() throws ReflectiveOperationException {
    Field local =
        StreamExecutionEnvironment.class.getDeclaredField("threadLocalContextEnvironmentFactory");
    local.setAccessible(true);
    Object found = ((ThreadLocal<?>) local.get(null)).get();
    if (found == null) {
      Field all = StreamExecutionEnvironment.class.getDeclaredField("contextEnvironmentFactory");
      all.setAccessible(true);
      found = all.get(null);
    }
    return found == null
        ? given -> new StreamExecutionEnvironment(given, null)
        : (StreamExecutionEnvironmentFactory) found;
  }

  private static StreamExecutionEnvironment placing(
      StreamExecutionEnvironmentFactory before, Configuration given, ClassLoader loader) {
    StreamExecutionEnvironment environment = before.createExecutionEnvironment(given);
    try {
      Field field = StreamExecutionEnvironment.class.getDeclaredField("executorServiceLoader");
      field.setAccessible(true);
      field.set(environment, new Loader((PipelineExecutorServiceLoader) field.get(environment)));
    } catch (ReflectiveOperationException error) {
      throw new Refusal("this Flink has no executorServiceLoader to place jobs with: " + error);
    }
    return environment;
  }

  /** Flink's own executors, behind Nova. */
  private static final class Loader implements PipelineExecutorServiceLoader {
    private final PipelineExecutorServiceLoader real;

    Loader(PipelineExecutorServiceLoader real) {
      this.real = real;
    }

    @Override
    public PipelineExecutorFactory getExecutorFactory(Configuration configuration)
        throws Exception {
      PipelineExecutorFactory factory = real.getExecutorFactory(configuration);
      return new PipelineExecutorFactory() {
        @Override
        public String getName() {
          return factory.getName();
        }

        @Override
        public boolean isCompatibleWith(Configuration given) {
          return factory.isCompatibleWith(given);
        }

        @Override
        public PipelineExecutor getExecutor(Configuration given) {
          PipelineExecutor executor = factory.getExecutor(given);
          return (pipeline, settings, loader) ->
              Placing.submit(executor, pipeline, settings, loader);
        }
      };
    }

    @Override
    public Stream<String> getExecutorNames() {
      return real.getExecutorNames();
    }
  }
}
