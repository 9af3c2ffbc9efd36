#!/usr/bin/env escript
%% worker.escript: does jobs until SIGTERM, with eredis.
-mode(compile).
-behaviour(gen_event).
-export([init/1, handle_event/2, handle_call/2]).

-define(BLOCK_MS, 2000). %% how long it may take to see that it is to stop

main(_) ->
    io:setopts([{encoding, latin1}]), %% bytes as they are
    logger:set_primary_config(level, none), %% it goes to the standard output
    Queue = os:getenv("FILA_QUEUE", "jobs"),
    LeaseMs = list_to_integer(os:getenv("FILA_LEASE_MS", "30000")),
    ok = gen_event:swap_handler(erl_signal_server, {erl_signal_handler, []}, {?MODULE, self()}),
    {ok, Fila} = eredis:start_link(os:getenv("FILA_HOST", "127.0.0.1"), list_to_integer(os:getenv("FILA_PORT", "5555"))),
    loop(Fila, Queue, LeaseMs).

loop(Fila, Queue, LeaseMs) ->
    receive stop -> halt(0) after 0 -> ok end,
    %% The timeout of a call has to be longer than BLOCK.
    case eredis:q(Fila, ["FILA.LEASE", Queue, "BLOCK", ?BLOCK_MS, "VISIBILITY", LeaseMs], ?BLOCK_MS + 5000) of
        {ok, Messages} ->
            [handle(Fila, Queue, LeaseMs, Receipt, Job) || [Receipt, Job | _] <- Messages];
        {error, Reason} ->
            away(Reason)
    end,
    loop(Fila, Queue, LeaseMs).

handle(Fila, Queue, LeaseMs, Receipt, Job) ->
    {ok, Extending} = timer:apply_interval(LeaseMs div 3, eredis, q, [Fila, ["FILA.EXTEND", Queue, Receipt, LeaseMs]]),
    Done = try work(binary:split(Job, <<" ">>)) of _ -> ["FILA.ACK", Queue, Receipt]
           catch throw:Error -> ["FILA.NACK", Queue, Receipt, "ERROR", Error]
           end,
    timer:cancel(Extending),
    case eredis:q(Fila, Done) of
        {ok, _} -> ok;
        {error, Reason} -> away(Reason)
    end.

away(<<"NOQUEUE ", _/binary>> = Reason) ->
    io:format(standard_error, "the queue does not exist yet: ~s~n", [Reason]),
    timer:sleep(1000);
away(Reason) ->
    io:format(standard_error, "the broker is away: ~p~n", [Reason]),
    timer:sleep(1000).

work([<<"say">>, Text]) -> io:format("~s~n", [Text]);
work([<<"sleep">>, Seconds]) -> timer:sleep(round(number(Seconds) * 1000));
work([_, Error]) -> throw(Error).

number(Text) -> try binary_to_float(Text) catch error:badarg -> binary_to_integer(Text) end.

%% SIGTERM is a message to the loop, in place of the end of the node.
init({Loop, _}) -> {ok, Loop}.
handle_event(sigterm, Loop) -> Loop ! stop, {ok, Loop};
handle_event(_, Loop) -> {ok, Loop}.
handle_call(_, Loop) -> {ok, ok, Loop}.
