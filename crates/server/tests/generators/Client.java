import java.util.Map;
import org.openapitools.client.ApiClient;
import org.openapitools.client.api.JobsApi;
import org.openapitools.client.model.Awaited;
import org.openapitools.client.model.PriorityName;
import org.openapitools.client.model.RetryOptions;
import org.openapitools.client.model.SubmitRequest;
import org.openapitools.client.model.SubmitTags;

/** Submits a job by the client of openapi-generator, and prints its value. */
public class Client {
  public static void main(String[] arguments) throws Exception {
    ApiClient client = new ApiClient();
    client.setBasePath(System.getenv("GRISTMILL_URL"));
    SubmitRequest request = new SubmitRequest()
        .kind("double")
        .payload(21)
        .priority(new PriorityName("high"))
        .retry(new RetryOptions().attemptsMax(2))
        .tags(new SubmitTags(Map.of("team", "red")));
    Awaited awaited = new JobsApi(client).submit(request, "30s", null);
    Map<?, ?> result = (Map<?, ?>) awaited.getResults().get(0);
    System.out.println(((Number) result.get("value")).intValue());
  }
}
