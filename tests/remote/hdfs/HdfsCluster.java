import java.io.File;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.MiniDFSCluster;

/** A name node and a data node on 127.0.0.1, below the folder args[0], until standard input ends. */
public final class HdfsCluster {
  private HdfsCluster() {}

  public static void main(String[] args) throws Exception {
    Configuration settings = new Configuration();
    // Small, so that the files of a test have several blocks.
    settings.set("dfs.namenode.fs-limits.min-block-size", "4096");
    settings.set("dfs.blocksize", "40960");
    settings.set("dfs.replication", "1");
    try (MiniDFSCluster cluster = new MiniDFSCluster.Builder(settings, new File(args[0])).numDataNodes(1).build()) {
      cluster.waitActive();
      System.out.println(cluster.getNameNodePort());
      while (System.in.read() >= 0) {
        // until the test ends
      }
    }
    System.exit(0);
  }
}
