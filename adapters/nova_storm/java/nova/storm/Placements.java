package nova.storm;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import net.minidev.json.JSONValue;
import org.apache.storm.blobstore.ClientBlobStore;
import org.apache.storm.generated.AuthorizationException;
import org.apache.storm.generated.KeyNotFoundException;
import org.apache.storm.generated.SettableBlobMeta;
import org.apache.storm.utils.Utils;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Placements of topologies that run, in Storm's own blob store.
 *
 * <p>They are not in a topology's configuration, which Storm's rebalancing could replace: supervisors
 * notice within half a minute that a configuration has changed, and then end its workers, also those
 * that are just starting ({@link Ask} waits for these before it has a topology placed anew).
 */
final class Placements {
  private static final Logger LOG = LoggerFactory.getLogger(Placements.class);

  private final Map<String, Object> conf;
  // What was read last.
  private final Map<String, Map<?, ?>> known = new HashMap<>();
  private ClientBlobStore store;

  /**
   * @param conf of a client of nimbus
   */
  Placements(Map<String, Object> conf) {
    this.conf = conf;
  }

  private static String key(String topologyId) {
    return "nova-placement-" + topologyId;
  }

  /** Keeps one, in place of an earlier one. */
  static void write(Map<String, Object> conf, String topologyId, String placement)
      throws Exception {
    try (ClientBlobStore store = Utils.getClientBlobStore(conf)) {
      String key = key(topologyId);
      try (OutputStream out =
          store.isRemoteBlobExists(key)
              ? store.updateBlob(key)
              : store.createBlob(key, new SettableBlobMeta(List.of()))) {
        out.write(placement.getBytes(StandardCharsets.UTF_8));
      }
    }
  }

  /** Forgets that of a topology that has ended. */
  static void drop(Map<String, Object> conf, String topologyId) throws Exception {
    try (ClientBlobStore store = Utils.getClientBlobStore(conf)) {
      store.deleteBlob(key(topologyId));
    } catch (KeyNotFoundException none) {
      // It was placed by what it was submitted with, or not at all.
    }
  }

  /** A topology's placement; null where there is none. Where nimbus cannot tell, what it told last. */
  Map<?, ?> of(String topologyId) {
    try {
      if (store == null) {
        store = Utils.getClientBlobStore(conf);
      }
      try (InputStream in = store.getBlob(key(topologyId))) {
        String text = new String(in.readAllBytes(), StandardCharsets.UTF_8);
        known.put(topologyId, (Map<?, ?>) JSONValue.parse(text));
      }
    } catch (KeyNotFoundException none) {
      known.remove(topologyId);
    } catch (IOException | AuthorizationException | RuntimeException error) {
      LOG.warn("Placement of {}: cannot be read: {}", topologyId, error.toString());
      if (store != null) {
        store.close();
        store = null;
      }
    }
    return known.get(topologyId);
  }
}
