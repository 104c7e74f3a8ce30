//! Runs one piece of work on Gristmill (on SQLite or PostgreSQL) or on bare rows: `bench-driver '{"contender":"gristmill","work":"drain",…}'`
//! (see [`order::Order`]). Prints one line of JSON: `{"jobs":…,"seconds":…}`, or latencies in milliseconds.

mod bare;
mod claims;
mod dependencies;
mod gristmill;
mod limits;
mod order;
mod schedules;
mod scheduler;

use std::error::Error;

use order::Order;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let order = std::env::args()
        .nth(1)
        .ok_or("one argument is needed: the order, as JSON")?;
    let order: Order = serde_json::from_str(&order)?;
    let result = match order.contender.as_str() {
        "gristmill" => gristmill::measure(&order).await?,
        "bare" => bare::measure(&order)?,
        other => return Err(format!("no contender is called `{other}`").into()),
    };
    println!("{result}");
    Ok(())
}
