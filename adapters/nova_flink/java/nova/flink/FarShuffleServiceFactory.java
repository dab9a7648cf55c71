package nova.flink;

import java.util.Optional;
import org.apache.flink.configuration.ConfigOption;
import org.apache.flink.configuration.ConfigOptions;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.MemorySize;
import org.apache.flink.configuration.NettyShuffleEnvironmentOptions;
import org.apache.flink.configuration.TaskManagerOptions;
import org.apache.flink.runtime.io.network.ConnectionManager;
import org.apache.flink.runtime.io.network.LocalConnectionManager;
import org.apache.flink.runtime.io.network.NettyShuffleEnvironment;
import org.apache.flink.runtime.io.network.NettyShuffleServiceFactory;
import org.apache.flink.runtime.io.network.netty.NettyConnectionManager;
import org.apache.flink.runtime.io.network.partition.ResultPartitionManager;
import org.apache.flink.runtime.shuffle.NettyShuffleMaster;
import org.apache.flink.runtime.shuffle.NettyShuffleUtils;
import org.apache.flink.runtime.shuffle.ShuffleEnvironmentContext;
import org.apache.flink.runtime.shuffle.ShuffleMasterContext;
import org.apache.flink.runtime.shuffle.TaskInputsOutputsDescriptor;
import org.apache.flink.runtime.taskmanager.NettyShuffleEnvironmentConfiguration;

/**
 * Flink's own exchange of tuples between hosts, for hosts that are far apart.
 *
 * <p>A receiver grants a sender buffers, and each takes a round trip to be granted again. Flink
 * fixes their number at two for each channel and eight for each gate, which within a data center is
 * plenty; over hundreds of milliseconds tuples wait for grants longer than they travel. Together
 * these hold 4 MB: 10 MB/s over 400 ms.
 */
public final class FarShuffleServiceFactory extends NettyShuffleServiceFactory {
  static final ConfigOption<Integer> PER_CHANNEL =
      ConfigOptions.key("nova.network.buffers-per-channel").intType().defaultValue(16);
  static final ConfigOption<Integer> FLOATING =
      ConfigOptions.key("nova.network.floating-buffers-per-gate").intType().defaultValue(240);

  private static final int EVERY_PARALLELISM = 1;
  // Of the floating ones only so many are sure to be there.
  private static final int SURE_FLOATING = 4;

  @Override
  public NettyShuffleMaster createShuffleMaster(ShuffleMasterContext context) {
    Configuration configuration = context.getConfiguration();
    int perChannel = configuration.get(PER_CHANNEL);
    int sure = Math.min(SURE_FLOATING, configuration.get(FLOATING));
    long size = configuration.get(TaskManagerOptions.MEMORY_SEGMENT_SIZE).getBytes();
    return new NettyShuffleMaster(context) {
      @Override
      public MemorySize computeShuffleMemorySizeForTask(TaskInputsOutputsDescriptor task) {
        int buffers =
            NettyShuffleUtils.computeNetworkBuffersForAnnouncing(
                perChannel,
                sure,
                Optional.empty(),
                EVERY_PARALLELISM,
                configuration.get(NettyShuffleEnvironmentOptions.NETWORK_SORT_SHUFFLE_MIN_BUFFERS),
                task.getInputChannelNums(),
                task.getPartitionReuseCount(),
                task.getSubpartitionNums(),
                task.getInputPartitionTypes(),
                task.getPartitionTypes());
        return new MemorySize(size * buffers);
      }
    };
  }

  @Override
  public NettyShuffleEnvironment createShuffleEnvironment(ShuffleEnvironmentContext context) {
    NettyShuffleEnvironmentConfiguration found =
        NettyShuffleEnvironmentConfiguration.fromConfiguration(
            context.getConfiguration(),
            context.getNetworkMemorySize(),
            context.isLocalCommunicationOnly(),
            context.getHostAddress());
    NettyShuffleEnvironmentConfiguration wide = widened(found, context.getConfiguration());
    ResultPartitionManager partitions =
        new ResultPartitionManager(
            wide.getPartitionRequestListenerTimeout(), context.getScheduledExecutor());
    ConnectionManager connections =
        wide.nettyConfig() == null
            ? new LocalConnectionManager()
            : new NettyConnectionManager(
                partitions,
                context.getEventPublisher(),
                wide.nettyConfig(),
                wide.isConnectionReuseEnabled());
    return createNettyShuffleEnvironment(
        wide,
        context.getTaskExecutorResourceId(),
        context.getEventPublisher(),
        partitions,
        connections,
        context.getParentMetricGroup(),
        context.getIoExecutor(),
        context.getNumberOfSlots(),
        context.getTmpDirPaths());
  }

  private static NettyShuffleEnvironmentConfiguration widened(
      NettyShuffleEnvironmentConfiguration found, Configuration configuration) {
    int perChannel = configuration.get(PER_CHANNEL);
    int floating = configuration.get(FLOATING);
    Optional<Integer> most = found.maxRequiredBuffersPerGate();
    return new NettyShuffleEnvironmentConfiguration(
        found.numNetworkBuffers(),
        found.networkBufferSize(),
        found.startingBufferSize(),
        found.partitionRequestInitialBackoff(),
        found.partitionRequestMaxBackoff(),
        found.getPartitionRequestListenerTimeout(),
        perChannel,
        floating,
        most,
        found.getRequestSegmentsTimeout(),
        found.isNetworkDetailedMetrics(),
        found.nettyConfig(),
        found.getTempDirs(),
        found.getBlockingSubpartitionType(),
        found.isBatchShuffleCompressionEnabled(),
        found.getCompressionCodec(),
        // A sender may have as many on their way.
        Math.max(found.getMaxBuffersPerChannel(), perChannel + floating),
        found.batchShuffleReadMemoryBytes(),
        found.sortShuffleMinBuffers(),
        found.sortShuffleMinParallelism(),
        found.getDebloatConfiguration(),
        found.isConnectionReuseEnabled(),
        found.getMaxOverdraftBuffersPerGate(),
        found.getTieredStorageConfiguration());
  }
}
