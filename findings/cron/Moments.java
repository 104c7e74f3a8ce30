import com.cronutils.model.CronType;
import com.cronutils.model.definition.CronDefinitionBuilder;
import com.cronutils.model.time.ExecutionTime;
import com.cronutils.parser.CronParser;
import java.time.Instant;
import java.time.ZoneId;
import java.time.ZonedDateTime;
import java.util.ArrayList;
import java.util.Date;
import java.util.List;
import java.util.TimeZone;
import java.util.function.UnaryOperator;
import java.util.stream.Collectors;
import org.springframework.scheduling.support.CronExpression;

public class Moments {
    interface Read {
        UnaryOperator<ZonedDateTime> read() throws Exception;
    }

    static void tell(String library, ZonedDateTime start, int count, Read read) {
        List<String> told = new ArrayList<>();
        try {
            UnaryOperator<ZonedDateTime> next = read.read();
            ZonedDateTime last = start;
            for (int i = 0; i < count; i++) {
                last = next.apply(last);
                told.add(last.toInstant().toString().substring(0, 16) + "Z");
            }
        } catch (Exception refused) {
            told = List.of("refused");
        }
        System.out.println(library + ": " + told.stream().collect(Collectors.joining(" ")));
    }

    public static void main(String[] given) {
        String expression = given[0];
        ZoneId zone = ZoneId.of(given[1]);
        ZonedDateTime start = Instant.parse(given[2]).atZone(zone);
        int count = Integer.parseInt(given[3]);
        // Spring and Quartz want seconds.
        tell("Java Spring", start, count, () -> CronExpression.parse("0 " + expression)::next);
        tell("Java Quartz", start, count, () -> {
            // It wants `?` in one of the two fields of days.
            String[] fields = expression.split(" ");
            if (fields[4].equals("*")) fields[4] = "?";
            else if (fields[2].equals("*")) fields[2] = "?";
            var read = new org.quartz.CronExpression("0 " + String.join(" ", fields));
            read.setTimeZone(TimeZone.getTimeZone(zone));
            return last -> read.getNextValidTimeAfter(Date.from(last.toInstant())).toInstant().atZone(zone);
        });
        tell("Java cron-utils", start, count, () -> {
            var unix = CronDefinitionBuilder.instanceDefinitionFor(CronType.UNIX);
            var times = ExecutionTime.forCron(new CronParser(unix).parse(expression));
            return last -> times.nextExecution(last).get();
        });
    }
}
