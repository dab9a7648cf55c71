package nova.flink.plugin;

import org.apache.flink.client.deployment.ClusterClientFactory;
import org.apache.flink.client.deployment.ClusterDescriptor;
import org.apache.flink.client.deployment.ClusterSpecification;
import org.apache.flink.client.deployment.DefaultClusterClientServiceLoader;
import org.apache.flink.configuration.Configuration;

/** How {@code flink list}, {@code cancel} and the SQL client reach the cluster behind Nova. */
public final class NovaClientFactory implements ClusterClientFactory<Object> {
  @Override
  public boolean isCompatibleWith(Configuration configuration) {
    return Settings.chosen(configuration);
  }

  @Override
  public ClusterDescriptor<Object> createClusterDescriptor(Configuration configuration) {
    Configuration behind = Settings.behind(configuration);
    return real(behind).createClusterDescriptor(behind);
  }

  @Override
  public Object getClusterId(Configuration configuration) {
    Configuration behind = Settings.behind(configuration);
    return real(behind).getClusterId(behind);
  }

  @Override
  public ClusterSpecification getClusterSpecification(Configuration configuration) {
    Configuration behind = Settings.behind(configuration);
    return real(behind).getClusterSpecification(behind);
  }

  private static ClusterClientFactory<Object> real(Configuration behind) {
    return new DefaultClusterClientServiceLoader().getClusterClientFactory(behind);
  }
}
