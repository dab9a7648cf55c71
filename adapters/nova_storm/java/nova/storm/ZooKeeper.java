package nova.storm;

import java.net.InetSocketAddress;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.storm.shade.org.apache.zookeeper.server.NIOServerCnxnFactory;
import org.apache.storm.shade.org.apache.zookeeper.server.ZooKeeperServer;

/** ZooKeeper, out of Storm's own jars, for a cluster that has none: ADDRESS PORT DIRECTORY. */
public final class ZooKeeper {
  private static final int TICK_MS = 2000;
  private static final int CONNECTIONS = 0;

  private ZooKeeper() {}

  /** See the class. */
  public static void main(String[] arguments) throws Exception {
    Path directory = Files.createDirectories(Path.of(arguments[2]));
    NIOServerCnxnFactory factory = new NIOServerCnxnFactory();
    factory.configure(
        new InetSocketAddress(arguments[0], Integer.parseInt(arguments[1])), CONNECTIONS);
    factory.startup(new ZooKeeperServer(directory.toFile(), directory.toFile(), TICK_MS));
    factory.join();
  }
}
