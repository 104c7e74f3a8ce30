//! Runs one piece of work on Gristmill (on SQLite or PostgreSQL) or on bare rows:
//! `bench-driver '{"contender":"gristmill","work":"drain",…}'` (see [`order::Order`]).
//! Prints one line of JSON: `{"jobs":…,"seconds":…}`, or latencies in milliseconds.

mod bare;
mod claims;
mod dependencies;
mod flows;
mod gristmill;
mod limits;
mod order;
mod scheduler;
mod schedules;
mod workload;

use std::error::Error;

use order::Order;
use serde_json::Value;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let order = std::env::args()
        .nth(1)
        .ok_or("one argument is needed: the order, as JSON")?;
    let order: Order = serde_json::from_str(&order)?;
    println!("{}", measure(order).await?);
    Ok(())
}

async fn measure(order: Order) -> Result<Value, Box<dyn Error + Send + Sync>> {
    match order.contender.as_str() {
        // A task like others, as handlers of a server are.
        "gristmill" => {
            let measured = async move {
                gristmill::measure(&order)
                    .await
                    .map_err(|error| error.to_string())
            };
            Ok(tokio::spawn(measured).await??)
        }
        "bare" => bare::measure(&order),
        other => Err(format!("no contender is called `{other}`").into()),
    }
}
