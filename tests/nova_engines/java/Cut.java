import java.util.Scanner;
import nova.engines.Intervals;

/** Prints the partition of every sequence number on the standard input; each is LOW:HIGH. */
public final class Cut {
  public static void main(String[] bounds) {
    Intervals[] partitions = new Intervals[bounds.length];
    for (int i = 0; i < bounds.length; i++) {
      String[] ends = bounds[i].split(":");
      double low = Double.parseDouble(ends[0]);
      double high = Double.parseDouble(ends[1]);
      partitions[i] = new Intervals(new double[] {low}, new double[] {high});
    }
    Scanner numbers = new Scanner(System.in);
    while (numbers.hasNextLong()) {
      double place = Intervals.place(numbers.nextLong());
      int found = -1;
      for (int i = 0; i < partitions.length; i++) {
        if (partitions[i].hold(place)) {
          found = i;
        }
      }
      System.out.println(found);
    }
  }
}
