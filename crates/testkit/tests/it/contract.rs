//! The connector of the kit itself keeps the contract; those of the providers are in the tests of `providers`.

use testkit::contract::{ConnectorUnderTest, WorldUnderTest, check};

#[tokio::test(flavor = "multi_thread")]
async fn world_keeps_the_contract() {
    for seed in 1..4 {
        let world = WorldUnderTest::new(230, seed);
        world.step(100);
        check(&world).await;
    }
}
