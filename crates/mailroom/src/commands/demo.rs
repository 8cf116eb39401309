pub async fn run(_: &crate::config::Config, _: &crate::cli::Demo, _: crate::output::Output) -> Result<std::process::ExitCode, crate::failure::Failure> { todo!() }
