pub async fn run(_: &crate::cli::BenchIngest, _: crate::output::Output) -> Result<std::process::ExitCode, crate::failure::Failure> { todo!() }
