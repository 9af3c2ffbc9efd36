#!/usr/bin/env escript
%% producer.escript KEY JOB...: enqueues jobs for a tenant, with eredis.
-mode(compile).

main([Key | Jobs]) ->
    io:setopts([{encoding, latin1}]), %% bytes as they are
    Queue = os:getenv("FILA_QUEUE", "jobs"),
    {ok, Fila} = eredis:start_link(os:getenv("FILA_HOST", "127.0.0.1"), list_to_integer(os:getenv("FILA_PORT", "5555"))),
    {ok, _} = eredis:q(Fila, ["FILA.QUEUE", "CREATE", Queue, "IFNOTEXISTS"]),
    [begin
         Payload = unicode:characters_to_binary(Job),
         {ok, Id} = eredis:q(Fila, ["FILA.ENQUEUE", Queue, Payload, "KEY", Key, "HEADER", "from", "erlang"]),
         io:format("~s~n", [Id])
     end || Job <- Jobs].
